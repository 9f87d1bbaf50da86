# A drive with a volatile cache, as a plugin of nbdkit's. What is written is in memory and in a log; a flush moves what the
# log holds to the image. After a power cut (SIGKILL) the image and the log are there. What is in the image is safe. Of the log
# anything may have reached the drive or not.
import os
import struct
import nbdkit

API_VERSION = 2
paths = {}
content = bytearray()
image = log = -1


def config(key, value):
    paths[key] = value


def get_ready():
    global content, image, log
    image = os.open(paths["image"], os.O_RDWR)
    content = bytearray(os.pread(image, os.fstat(image).st_size, 0))
    log = os.open(paths["log"], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS


def open(readonly):
    return 1


def get_size(handle):
    return len(content)


def can_flush(handle):
    return True


def pread(handle, buf, offset, flags):
    buf[:] = content[offset:offset + len(buf)]


def pwrite(handle, buf, offset, flags):
    content[offset:offset + len(buf)] = buf
    os.write(log, struct.pack("<QQ", offset, len(buf)) + bytes(buf))


def flush(handle, flags):
    at = 0
    while True:
        head = os.pread(log, 16, at)
        if len(head) < 16:
            break
        offset, length = struct.unpack("<QQ", head)
        os.pwrite(image, os.pread(log, length, at + 16), offset)
        at += 16 + length
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)
