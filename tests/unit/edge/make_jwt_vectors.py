"""make_jwt_vectors.py: jwt_vectors.h from PyJWT: a key set, and a token of each algorithm that ends in 2100. Run by hand; keys are thrown away."""
import json
import sys

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

KEYS = [("RS256", jwt.algorithms.RSAAlgorithm, rsa.generate_private_key(65537, 2048)),
        ("ES256", jwt.algorithms.ECAlgorithm, ec.generate_private_key(ec.SECP256R1())),
        ("EdDSA", jwt.algorithms.OKPAlgorithm, ed25519.Ed25519PrivateKey.generate())]
CLAIMS = {"iss": "joe", "aud": "us", "nbf": 1000000000, "exp": 4102444800, "sub": "ann", "scope": "x read", "tenant": "acme"}


def c_string(text):
    return "\n    ".join('"%s"' % text[i:i + 100].replace("\\", "\\\\").replace('"', '\\"') for i in range(0, len(text), 100))


jwks = {"keys": [{**json.loads(family.to_jwk(key.public_key())), "kid": alg} for alg, family, key in KEYS]}
print("/* jwt_vectors.h: made by make_jwt_vectors.py with PyJWT %s. */" % jwt.__version__)
print("#ifndef TESTS_UNIT_EDGE_JWT_VECTORS_H\n#define TESTS_UNIT_EDGE_JWT_VECTORS_H\n")
print("/* clang-format off */\nstatic const char vector_jwks[] =\n    %s;" % c_string(json.dumps(jwks)))
print("static const char *const vector_tokens[] = {")
for alg, _, key in KEYS:
    print("    %s," % c_string(jwt.encode(CLAIMS, key, alg, headers={"kid": alg})))
print("};\n/* clang-format on */\n\n#endif")
sys.stdout.flush()
