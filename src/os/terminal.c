/* terminal.c: isatty and the window size. */
#include "os/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

bool os_is_terminal(int fd)
{
    return isatty(fd) == 1;
}

int os_terminal_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
