/* WebSocket frames: no input may crash, how it is cut into pieces changes nothing, and a Close that is put where one may be ends the stream of frames. */
#include <stdint.h>
#include <stdlib.h>

#include "wire/websocket.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct websocket_frames whole = {0}, cut = {0};
    uint8_t close[WEBSOCKET_CLOSE_BYTES];
    size_t n = size ? data[0] % 7u + 1 : 1;
    websocket_frames_take(&whole, data, size);
    for (size_t at = 0; at < size; at += n)
        websocket_frames_take(&cut, data + at, size - at < n ? size - at : n);
    check(whole.lost == cut.lost && (whole.lost || (whole.left == cut.left && whole.head_n == cut.head_n)));
    check(whole.closing == cut.closing);
    if (!websocket_frames_may_close(&whole))
        return 0;
    size_t bytes = websocket_write_close(close, WEBSOCKET_GOING_AWAY, size % 2, (uint32_t)size * 2654435761u);
    websocket_frames_take(&whole, close, bytes);
    check(whole.closing && !whole.lost && whole.left == 0 && whole.head_n == 0 && !websocket_frames_may_close(&whole));
    return 0;
}
