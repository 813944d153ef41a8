/* grpc_descriptors.h: the schema of inferd's gRPC services as protoc compiled it, for reflection: constants, made by
 * tools/make_grpc_descriptors.py from proto/. */
#ifndef INFERD_API_GRPC_DESCRIPTORS_H
#define INFERD_API_GRPC_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

struct grpc_file {
    const char *name;
    const uint8_t *descriptor; /* a FileDescriptorProto, encoded */
    size_t n;
    uint32_t imports; /* bit i: file i, which comes before this one */
};

struct grpc_symbol {
    const char *name; /* fully qualified, without a leading dot */
    uint32_t file;
};

extern const struct grpc_file grpc_files[];
extern const size_t grpc_n_files;
extern const char *const grpc_services[]; /* full names */
extern const size_t grpc_n_services;
extern const struct grpc_symbol grpc_symbols[]; /* sorted by strcmp */
extern const size_t grpc_n_symbols;

#endif
