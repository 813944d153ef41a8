/* jwt_vectors.h: made by make_jwt_vectors.py with PyJWT 2.15.1. */
#ifndef TESTS_UNIT_EDGE_JWT_VECTORS_H
#define TESTS_UNIT_EDGE_JWT_VECTORS_H

/* clang-format off */
static const char vector_jwks[] =
    "{\"keys\": [{\"kty\": \"RSA\", \"key_ops\": [\"verify\"], \"n\": \"vZLF18owrOyRpTxIxVG313SBaeKWQim0NTurtSQqf6cgOK"
    "jBuJZNSp0SYFZW43sBQuYfJt4yyh5yh9V65M4Ra3mUNOnie3ZUWiWAB0RgbCnYSwc6ZWFx3S1Vv74xpfyA2uWZoXgEOBBAwq7vc4"
    "K6Y2Bltz1rMYu2WFL_zDMO7xUq3Pl-ebv9x40Owj7jF-xxcZ2P7L-kX6r_yLRIrOkoz7gkB9Vd66a9JK9mrtw4NvHzIzrNO6b4pt"
    "ltdBTuI-H6kk-0ddYcMpT1EkwiNopBx3RMtDGeAlRsjU2lklPiKBfBdIAAHrZ9_8K3e6UqGQI_2VBxiVZiZD2sHSJcBH9p3Q\", \""
    "e\": \"AQAB\", \"kid\": \"RS256\"}, {\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"uFA1djb5NF-NCO7Qa8OqEtQZ0u4zxjZcRQy"
    "G3P922-4\", \"y\": \"EiankQV2Nr0cRg931vAR5oCruUXHzPDYFxRc7uOCdsA\", \"kid\": \"ES256\"}, {\"x\": \"XBUo4XkOkiry6"
    "lyi59RgjIYdSb1uPrr5dwJWHQKPgMU\", \"kty\": \"OKP\", \"crv\": \"Ed25519\", \"kid\": \"EdDSA\"}]}";
static const char *const vector_tokens[] = {
    "eyJhbGciOiJSUzI1NiIsImtpZCI6IlJTMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJqb2UiLCJhdWQiOiJ1cyIsIm5iZiI6MTAw"
    "MDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJhbm4iLCJzY29wZSI6InggcmVhZCIsInRlbmFudCI6ImFjbWUifQ.jPzVD"
    "sFHFeLyklcQ0Zdtoh6n9EIQgs2fOVp71czbJ_-OtpgsROCHpghC4oUhIU8I66jmjbOb4Afhs-oGumoJfuf8OrB8ICx_9KXg5uJUt"
    "cwhDKfIFGTqNnMYqLo5T3Nto_nqF3VIcjNU8WgD_Je8zdoChxmwfOQD0msZFo2EB6EA2WLfcqnXm8lrXnkMhB7TDQL5rntHHQ69L"
    "pRCgihfFFymY43-fA5_05EVqFKBZG24GAaF-RoD-g5HkiEr4vT9Lv-MM1Ra8FwXSfjzC9AhunkfinA4ZmS4O_t_0ED6B24r7PtYj"
    "hS_8Eaec1bSKsRrOnjGkexOMrbFm2oIphV_Sg",
    "eyJhbGciOiJFUzI1NiIsImtpZCI6IkVTMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJqb2UiLCJhdWQiOiJ1cyIsIm5iZiI6MTAw"
    "MDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJhbm4iLCJzY29wZSI6InggcmVhZCIsInRlbmFudCI6ImFjbWUifQ.11qHb"
    "ZeVu1FqY4sFhixDhsdZ9A_injqB0by9TGedRyRy7-IfRybP7Sb_Qd8s1C5FD2f1Y5FnjKR6GXb_pZvz3g",
    "eyJhbGciOiJFZERTQSIsImtpZCI6IkVkRFNBIiwidHlwIjoiSldUIn0.eyJpc3MiOiJqb2UiLCJhdWQiOiJ1cyIsIm5iZiI6MTAw"
    "MDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwLCJzdWIiOiJhbm4iLCJzY29wZSI6InggcmVhZCIsInRlbmFudCI6ImFjbWUifQ.bihMD"
    "ismw6vu2SKdKQCjEqq9tBXONkGQV6zWr6gkABM8nNHCG6lpaTGRI9YravTU28nMHMfmrLi09rvPvjopBw",
};
/* clang-format on */

#endif
