"""Opens sealed datagrams of a capture with a log of keys (spec/seal.md, SEAL-6).

    OIKAZE_PCAP=x.pcapng OIKAZE_KEY_LOG=keys oikaze run -n 2 -- ./program
    python3 tools/open_capture.py --keys keys x.0.pcapng opened.pcapng
    wireshark -X lua_script:tools/wireshark/oikaze.lua opened.pcapng

The capture is one of OIKAZE_PCAP, or of another program that writes pcapng of raw IP or Ethernet.
Opened datagrams are written in clear, as kind 4 (authenticated). All else is copied. Prints how
many sealed datagrams there were, and how many of them were opened; the exit status is 1 if some
were not. Needs Python's `cryptography`.
"""

import argparse
import struct
import sys
from pathlib import Path

from cryptography.exceptions import InvalidTag
from seal_vectors import DATAGRAMS_PER_KEY, expand, key_and_nonce

LABEL = "OIKAZE_SEAL_1"
CIPHERS = {"AES-128-GCM": 1, "ChaCha20-Poly1305": 2}
# Lengths and places of WIRE-2.
HEADER = 24
TAG = 16
FLAGS_AT, SEAL_AT = 16, 17
ENCRYPTED, AUTHENTICATED = 3, 4
# Numbers of pcapng (draft-ietf-opsawg-pcapng) and of IP.
INTERFACE, PACKET = 1, 6
RAW, ETHERNET = 101, 1
UDP = 17
# A header that is not authentic may hold any number, and its epoch is not computed.
EPOCHS_MAX = 1 << 16


class Keys:
    """Secrets of a log, and the ciphers of the epochs that follow from them."""

    def __init__(self, log: Path):
        self.first = {}
        self.epochs = {}
        for number, line in enumerate(log.read_text().splitlines(), 1):
            words = line.split()
            if not words or words[0] != LABEL:
                continue
            try:
                _, cipher, connection, lane, secret = words
                place = (int(connection, 16), int(lane))
                chain = (CIPHERS[cipher], bytes.fromhex(secret))
            except (ValueError, KeyError):
                sys.exit(f"{log}:{number}: expected {LABEL} CIPHER CONNECTION LANE SECRET")
            chains = self.first.setdefault(place, [])
            if chain not in chains:
                chains.append(chain)

    def epoch(self, chain, epoch: int) -> bytes:
        """Returns the secret of an epoch."""
        known = self.epochs.setdefault(chain, [chain[1]])
        while len(known) <= epoch:
            known.append(expand(known[-1], b"oikaze next"))
        return known[epoch]

    def open(self, datagram: bytes):
        """Returns the clear text of an encrypted datagram, or None if no key opens it."""
        connection, number = struct.unpack_from("<QQ", datagram)
        lane = datagram[FLAGS_AT] >> 2 & 1
        epoch = number // DATAGRAMS_PER_KEY
        if epoch >= EPOCHS_MAX:
            return None
        for chain in self.first.get((connection, lane), []):
            key, nonce = key_and_nonce(chain[0], self.epoch(chain, epoch), number)
            try:
                return key.decrypt(nonce, datagram[HEADER:], datagram[:HEADER])
            except InvalidTag:
                continue
        return None


def is_encrypted(datagram: bytes) -> bool:
    """Returns True if this has the form of an encrypted datagram (WIRE-2)."""
    if len(datagram) < HEADER + TAG or datagram[SEAL_AT] != ENCRYPTED:
        return False
    (connection,) = struct.unpack_from("<Q", datagram)
    frames, payload, reserved = struct.unpack_from("<HHH", datagram, 18)
    return connection != 0 and reserved == 0 and HEADER + frames + payload + TAG == len(datagram)


def udp_at(packet: bytes, link: int):
    """Returns where a packet's UDP header is, or None if it has none."""
    at = 14 if link == ETHERNET else 0
    if len(packet) < at + 40:
        return None
    version = packet[at] >> 4
    if version == 4 and packet[at + 9] == UDP:
        return at + 4 * (packet[at] & 15)
    if version == 6 and packet[at + 6] == UDP:
        return at + 40
    return None


def opened(packet: bytes, link: int, keys: Keys):
    """Returns a packet in clear, or None if it is not opened; and whether it was sealed."""
    udp = udp_at(packet, link)
    if udp is None or len(packet) < udp + 8:
        return None, False
    (length,) = struct.unpack_from(">H", packet, udp + 4)
    datagram = packet[udp + 8 : udp + length]
    if not is_encrypted(datagram):
        return None, False
    clear = keys.open(datagram)
    if clear is None:
        return None, True
    head = bytearray(packet[: udp + 8 + HEADER])
    head[udp + 8 + SEAL_AT] = AUTHENTICATED
    # The checksum was of the sealed bytes; 0 says that there is none (RFC 768).
    struct.pack_into(">H", head, udp + 6, 0)
    return bytes(head) + clear + datagram[-TAG:] + packet[udp + length :], True


def open_capture(capture: bytes, keys: Keys):
    """Returns the capture in clear, the number of sealed datagrams, and of those opened."""
    out, links, at, sealed, done = bytearray(), [], 0, 0, 0
    while at + 12 <= len(capture):
        kind, length = struct.unpack_from("<II", capture, at)
        if length < 12 or length % 4 != 0:
            sys.exit(f"no pcapng file in little-endian order: a block of {length} bytes at {at}")
        block = bytearray(capture[at : at + length])
        if len(block) < length:
            # A program that was killed leaves its last block unfinished.
            break
        if kind == INTERFACE and length >= 20:
            links += struct.unpack_from("<H", block, 8)
        elif kind == PACKET and length >= 32:
            interface, _, _, captured = struct.unpack_from("<IIII", block, 8)
            packet = bytes(block[28 : 28 + captured])
            link = links[interface] if interface < len(links) else RAW
            clear, was_sealed = opened(packet, link, keys)
            sealed += was_sealed
            if clear is not None:
                block[28 : 28 + captured] = clear
                done += 1
        out += block
        at += length
    return bytes(out), sealed, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=Path, required=True, help="log of keys (OIKAZE_KEY_LOG)")
    parser.add_argument("capture", type=Path)
    parser.add_argument("opened", type=Path)
    options = parser.parse_args()
    clear, sealed, done = open_capture(options.capture.read_bytes(), Keys(options.keys))
    options.opened.write_bytes(clear)
    print(f"{done} of {sealed} sealed datagrams opened")
    return int(done < sealed)


if __name__ == "__main__":
    sys.exit(main())
