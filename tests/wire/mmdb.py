"""mmdb.py: writes small databases in MaxMind's format (version 2.0 of its specification), for tests: IPv4 only, records of 24 bits."""
import ipaddress
import struct

MARKER = b"\xab\xcd\xefMaxMind.com"
TEXT, UINT16, UINT32, MAP, UINT64, ARRAY = 2, 5, 6, 7, 9, 11


def head(kind, size):
    assert size < 29
    return bytes([kind << 5 | size]) if kind < 8 else bytes([size, kind - 7])


def encode(value, kind=None):
    if isinstance(value, dict):
        return head(MAP, len(value)) + b"".join(encode(k) + encode(*v if isinstance(v, tuple) else (v,)) for k, v in value.items())
    if isinstance(value, list):
        return head(ARRAY, len(value)) + b"".join(encode(v) for v in value)
    if isinstance(value, int):
        data = value.to_bytes(8, "big").lstrip(b"\0")
        return head(kind, len(data)) + data
    return head(TEXT, len(value.encode())) + value.encode()


def database(networks):
    """{"192.0.2.0/24": {...}}: the more specific networks override the others."""
    nodes, data, offsets = [[None, None]], b"", {}
    for text, record in sorted(networks.items(), key=lambda kv: ipaddress.ip_network(kv[0]).prefixlen):
        network = ipaddress.ip_network(text)
        bits = [int(network.network_address) >> (31 - i) & 1 for i in range(network.prefixlen)]
        offsets[text] = len(data)
        data += encode(record)
        at = 0
        for bit in bits[:-1]:
            if not isinstance(nodes[at][bit], int):  # nothing, or a wider network, which both halves inherit
                nodes.append([nodes[at][bit]] * 2)
                nodes[at][bit] = len(nodes) - 1
            at = nodes[at][bit]
        nodes[at][bits[-1]] = text
    def record_of(x):
        return len(nodes) if x is None else x if isinstance(x, int) else len(nodes) + 16 + offsets[x]
    tree = b"".join(struct.pack(">I", record_of(x))[1:] for node in nodes for x in node)
    meta = {"binary_format_major_version": (2, UINT16), "binary_format_minor_version": (0, UINT16), "build_epoch": (1, UINT64),
            "database_type": "Test", "description": {"en": "made by a test"}, "ip_version": (4, UINT16), "languages": ["en"],
            "node_count": (len(nodes), UINT32), "record_size": (24, UINT16)}
    return tree + b"\0" * 16 + data + MARKER + encode(meta)
