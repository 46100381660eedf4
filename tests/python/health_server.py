"""A gRPC health server on grpcio, by hand: the two messages of grpc.health.v1 have one field each.

In: HOST:PORT and, for TLS, the files of a certificate and its key. Out: SERVING for the server as a whole, NOT_SERVING for
the service `sick`, NOT_FOUND for every other. Ends with its process.
"""

import sys
from concurrent import futures

import grpc

# HealthCheckResponse: field 1, a varint.
STATES = {b"": b"\x08\x01", b"sick": b"\x08\x02"}


def check(request, context):
    """HealthCheckRequest: field 1, a string; names here are short."""
    service = request[2:]
    if service not in STATES:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return STATES[service]


def main():
    address, files = sys.argv[1], sys.argv[2:]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    methods = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods),))
    if files:
        certificate, key = (open(name, "rb").read() for name in files)
        server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    else:
        server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


main()
