"""The guest's side of the tests of its vsock.

vsock.py echo PORT                     answers with what it gets
vsock.py tls PORT AUTHORITIES CERT KEY the same by TLS, after the name of the client, which needs a certificate
vsock.py authorities                   prints the authorities that the host names
"""

import pathlib
import socket
import ssl
import struct
import sys

HOST = 2
ECHO = 4096
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, ACKNOWLEDGED, END_HEADERS = 1, 1, 4


def serve(port, accept):
    server = socket.socket(socket.AF_VSOCK)
    server.bind((socket.VMADDR_CID_ANY, port))
    server.listen()
    pathlib.Path(f"/tmp/listens-{port}").touch()
    while True:
        try:
            connection = accept(server.accept()[0])
            while received := connection.recv(ECHO):
                connection.sendall(received)
            connection.close()
        except OSError as error:
            print(error, file=sys.stderr, flush=True)


def by_tls(authorities, certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authorities)
    context.verify_mode = ssl.CERT_REQUIRED

    def accept(connection):
        connection = context.wrap_socket(connection, server_side=True)
        subject = dict(part[0] for part in connection.getpeercert()["subject"])
        connection.sendall(f"client {subject['commonName']}\n".encode())
        return connection

    return accept


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    """A field of HPACK that no table keeps."""
    return b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def read(connection, count):
    read = b""
    while len(read) < count:
        part = connection.recv(count - len(read))
        if not part:
            raise EOFError("the host has closed the connection")
        read += part
    return read


def authorities():
    """A call of gRPC by hand: the guest has no library for it."""
    connection = socket.socket(socket.AF_VSOCK)
    connection.settimeout(8)
    connection.connect((HOST, 1))
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/kubevirt.vsock.system.v1.System/CABundle"),
        (":authority", "host"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    fields = b"".join(header(name, value) for name, value in fields)
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(SETTINGS, 0, 0)
        + frame(HEADERS, END_HEADERS, 1, fields)
        + frame(DATA, END_STREAM, 1, bytes(5))
    )
    answer = b""
    while True:
        start = read(connection, 9)
        size, kind, flags = int.from_bytes(start[:3], "big"), start[3], start[4]
        payload = read(connection, size)
        if kind == SETTINGS and not flags & ACKNOWLEDGED:
            connection.sendall(frame(SETTINGS, ACKNOWLEDGED, 0))
        if kind == DATA:
            answer += payload
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            return bundle(answer)


def bundle(answer):
    """The first field of the message behind its five bytes of length."""
    if len(answer) < 7 or answer[5] != 0x0A:
        raise ValueError(f"no authorities: {answer!r}")
    size, shift, at = 0, 0, 6
    while True:
        size |= (answer[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not answer[at - 1] & 0x80:
            return answer[at : at + size].decode()


match sys.argv[1:]:
    case ["echo", port]:
        serve(int(port), lambda connection: connection)
    case ["tls", port, *files]:
        serve(int(port), by_tls(*files))
    case ["authorities"]:
        print(authorities(), end="")
    case _:
        sys.exit(__doc__)
