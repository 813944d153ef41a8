/* main.c: only dispatches to a subcommand. */
#include <stdio.h>

int main(void)
{
    printf("inferd %s\n", INFERD_VERSION);
    return 0;
}
