"""A TLS server that completes each handshake and closes the connection at once, without a word.

In: HOST:PORT, the files of a certificate and its key, and the one version that it speaks: TLSv1_2 or TLSv1_3. Ends with its
process.
"""

import socket
import ssl
import sys


def main():
    address, certificate, key, version = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    listener = socket.create_server((host, int(port)))
    while True:
        connection, _ = listener.accept()
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            # The look whether it accepts shakes no hands.
            connection.close()


main()
