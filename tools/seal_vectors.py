"""Computes what spec/seal.md says by another implementation (Python's `cryptography`).

Prints the test vectors of crates/os/src/seal.rs.
"""

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

DATAGRAMS_PER_KEY = 1 << 22


def expand(secret: bytes, info: bytes) -> bytes:
    return HKDFExpand(SHA256(), 32, info).derive(secret)


def seal(direction: bytes, lane: int, number: int, header: bytes, text: bytes) -> bytes:
    secret = expand(direction, b"oikaze lane" + bytes([lane]))
    for _ in range(number // DATAGRAMS_PER_KEY):
        secret = expand(secret, b"oikaze next")
    key = expand(secret, b"oikaze key")
    mask = number.to_bytes(12, "big")
    nonce = bytes(a ^ b for a, b in zip(key[16:28], mask))
    return AESGCM(key[:16]).encrypt(nonce, text, header)


if __name__ == "__main__":
    header = bytes(range(24))
    for lane, number in [(0, 1), (1, 5), (1, DATAGRAMS_PER_KEY + 5), (0, 2 * DATAGRAMS_PER_KEY)]:
        print(lane, number, seal(bytes(range(32)), lane, number, header, b"remote memory").hex())
