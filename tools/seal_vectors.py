"""Computes what spec/seal.md says by another implementation (Python's `cryptography`).

Prints the test vectors of crates/os/src/seal.rs.
"""

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

DATAGRAMS_PER_KEY = 1 << 22

# Ciphers by their number in the handshake (SEAL-2.6), each with the length of its key.
CIPHERS = {1: (AESGCM, 16), 2: (ChaCha20Poly1305, 32)}


def expand(secret: bytes, info: bytes, length: int = 32) -> bytes:
    return HKDFExpand(SHA256(), length, info).derive(secret)


def lane_secret(direction: bytes, lane: int) -> bytes:
    """Returns the secret of a lane's epoch 0 (SEAL-4.2)."""
    return expand(direction, b"oikaze lane" + bytes([lane]))


def epoch_secret(secret: bytes, number: int) -> bytes:
    """Returns the secret of the epoch of a datagram's number (SEAL-4.1)."""
    for _ in range(number // DATAGRAMS_PER_KEY):
        secret = expand(secret, b"oikaze next")
    return secret


def key_and_nonce(cipher: int, secret: bytes, number: int):
    """Returns the cipher under the key of an epoch, and the nonce of a number (SEAL-3.2)."""
    algorithm, length = CIPHERS[cipher]
    key = expand(secret, b"oikaze key", length + 12)
    mask = number.to_bytes(12, "big")
    return algorithm(key[:length]), bytes(a ^ b for a, b in zip(key[length:], mask))


def seal(cipher: int, direction: bytes, lane: int, number: int, header: bytes, text: bytes) -> bytes:
    secret = epoch_secret(lane_secret(direction, lane), number)
    key, nonce = key_and_nonce(cipher, secret, number)
    return key.encrypt(nonce, text, header)


if __name__ == "__main__":
    header = bytes(range(24))
    for cipher in CIPHERS:
        for lane, number in [(0, 1), (1, 5), (1, DATAGRAMS_PER_KEY + 5), (0, 2 * DATAGRAMS_PER_KEY)]:
            sealed = seal(cipher, bytes(range(32)), lane, number, header, b"remote memory")
            print(cipher, lane, number, sealed.hex())
