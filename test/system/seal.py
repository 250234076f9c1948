"""What heng push --encrypt stores, once more: from the published format of Tink's AES256_GCM_HKDF_1MB (and docs/encryption.md for SM4 and for how the salt
is made), with another library (python3-cryptography). Run alone it prints the known answers of test/wire/t_seal.c."""
import hashlib, hmac, struct

SEGMENT = 1 << 20
HEADS = {"aes": bytes([40]), "sm4": bytes([48]) + b"hengsm4\x01"}
TAGS = {"aes": 16, "sm4": 32}


def sm3_hmac(key, message):
    from cryptography.hazmat.primitives import hashes, hmac as hmacs
    mac = hmacs.HMAC(key, hashes.SM3())
    mac.update(message)
    return mac.finalize()


def mac(cipher, key, message):
    return sm3_hmac(key, message) if cipher == "sm4" else hmac.new(key, message, hashlib.sha256).digest()


def hkdf(cipher, key, salt, info, size):
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    return HKDF(hashes.SM3() if cipher == "sm4" else hashes.SHA256(), size, salt, info).derive(key)


def cut(cipher, plain):
    """The segments' plain bytes; there is always one."""
    first = SEGMENT - header_size(cipher) - TAGS[cipher]
    pieces, rest = [plain[:first]], plain[first:]
    other = SEGMENT - TAGS[cipher]
    return pieces + [rest[i:i + other] for i in range(0, len(rest), other)]


def header_size(cipher):
    return len(HEADS[cipher]) + 32 + 7


def salt_and_prefix(cipher, key, transfer, path, plain):
    keys = hkdf(cipher, key, None, b"heng seal content 1\0" + transfer.encode() + b"\0" + path, 64)
    macs = b""
    for i, piece in enumerate(cut(cipher, plain)):
        if cipher == "aes":
            macs += gmac(keys[:32], struct.pack(">IQ", 0, i), piece)
        else:
            macs += sm3_hmac(sm3_hmac(keys[:32], struct.pack(">Q", i)), piece)[:16]
    salt = mac(cipher, keys[32:], macs)
    return salt, mac(cipher, keys[32:], b"prefix" + salt)[:7]


def gmac(key, nonce, data):
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key).encrypt(nonce, b"", data)


def sm4(cipher_key, nonce, data):
    from cryptography.hazmat.primitives.ciphers import Cipher, modes
    from cryptography.hazmat.primitives.ciphers.algorithms import SM4
    return Cipher(SM4(cipher_key), modes.CTR(nonce + bytes(4))).encryptor().update(data)


def seal(cipher, key, salt, prefix, path, plain):
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    out, pieces = HEADS[cipher] + salt + prefix, cut(cipher, plain)
    keys = hkdf(cipher, key, salt, path, 32 if cipher == "aes" else 48)
    for i, piece in enumerate(pieces):
        nonce = prefix + struct.pack(">IB", i, i + 1 == len(pieces))
        if cipher == "aes":
            out += AESGCM(keys).encrypt(nonce, piece, None)
        else:
            sealed = sm4(keys[:16], nonce, piece)
            out += sealed + sm3_hmac(sm3_hmac(keys[16:], nonce), sealed)
    return out


def unseal(cipher, key, path, stored):
    """Raises what the library raises when a byte is wrong."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    head = len(HEADS[cipher])
    assert stored[:head] == HEADS[cipher], stored[:head]
    salt, prefix = stored[head:head + 32], stored[head + 32:head + 39]
    keys = hkdf(cipher, key, salt, path, 32 if cipher == "aes" else 48)
    count, plain = (len(stored) + SEGMENT - 1) // SEGMENT, b""
    for i in range(count):
        piece = stored[max(i * SEGMENT, header_size(cipher)):(i + 1) * SEGMENT]
        nonce = prefix + struct.pack(">IB", i, i + 1 == count)
        if cipher == "aes":
            plain += AESGCM(keys).decrypt(nonce, piece, None)
        else:
            sealed, tag = piece[:-32], piece[-32:]
            assert hmac.compare_digest(tag, sm3_hmac(sm3_hmac(keys[16:], nonce), sealed))
            plain += sm4(keys[:16], nonce, sealed)
    return plain


def key_of(path):
    with open(path) as file:
        return bytes.fromhex([line for line in file if not line.startswith("#")][0].split()[3])


if __name__ == "__main__":
    key, path = bytes(range(32)), b"a/\xe5\x87\xad b"
    for cipher in ("aes", "sm4"):
        first = SEGMENT - header_size(cipher) - TAGS[cipher]
        for size in (0, 1, first - 1, first, first + 1, first + SEGMENT - TAGS[cipher], 3 * SEGMENT + 5):
            plain = bytes((i * 31 + i // 97) & 255 for i in range(size))
            salt, prefix = salt_and_prefix(cipher, key, "01ARZ3NDEKTSV4RRFFQ69G5FAV", path, plain)
            stored = seal(cipher, key, salt, prefix, path, plain)
            assert unseal(cipher, key, path, stored) == plain
            print(f'\t\t{{ SEAL_{cipher.upper()}, {size}, {len(stored)}, "{hashlib.sha256(stored).hexdigest()}" }},')
