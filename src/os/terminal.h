/* terminal.h: what a command-line program asks about the terminal it writes to. Any thread; never blocks. */
#ifndef INFERD_OS_TERMINAL_H
#define INFERD_OS_TERMINAL_H

#include <stdbool.h>

/* Whether descriptor `fd` is a terminal. Any thread. */
bool os_is_terminal(int fd);
/* Columns of the terminal behind `fd`; 80 when it is none or doesn't say. */
int os_terminal_columns(int fd);

#endif
