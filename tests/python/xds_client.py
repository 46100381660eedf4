"""A gRPC client that does on xDS streams what it is told, the wrong things included.

In: the server; for TLS a file of authorities, and for mutual TLS a certificate and its key. One JSON command a line on stdin. Out: one JSON event a line on stdout, each with the stream it belongs to.

  {"op": "open", "stream": "s", "method": "sotw" | "delta", "read": true}
  {"op": "send", "stream": "s", "request": {…}, "names": 0, "padding": 0}
        request: a DiscoveryRequest or DeltaDiscoveryRequest in protobuf's JSON; `names` adds that many resource names,
        `padding` that many bytes of error detail
  {"op": "close", "stream": "s"}

  {"event": "response", "type", "version", "nonce", "bytes", "names", "removed", "health": {"address:port": "HEALTHY"},
   "collections": ["xdstp://…/*"]}
        `collections`: where the endpoints of load assignments stand apart
  {"event": "end", "code": "INVALID_ARGUMENT", "details": "…"}

Not here: any decision. The scenario that drives it decides.
"""

import json
import queue
import sys
import threading

import grpc
from envoy.config.core.v3 import health_check_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
METHODS = {
    "sotw": ("StreamAggregatedResources", discovery_pb2.DiscoveryRequest, discovery_pb2.DiscoveryResponse),
    "delta": ("DeltaAggregatedResources", discovery_pb2.DeltaDiscoveryRequest, discovery_pb2.DeltaDiscoveryResponse),
}
TYPES = {
    "envoy.config.cluster.v3.Cluster": (cluster_pb2.Cluster, "name"),
    "envoy.config.endpoint.v3.ClusterLoadAssignment": (endpoint_pb2.ClusterLoadAssignment, "cluster_name"),
    "envoy.config.listener.v3.Listener": (listener_pb2.Listener, "name"),
    "envoy.config.route.v3.RouteConfiguration": (route_pb2.RouteConfiguration, "name"),
}
OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]

out_lock = threading.Lock()


def emit(stream, event, **fields):
    with out_lock:
        print(json.dumps({"stream": stream, "event": event, **fields}), flush=True)


def health_of(endpoints):
    """The status of each of some LbEndpoints."""
    health = {}
    for entry in endpoints:
        address = entry.endpoint.address.socket_address
        name = f"{address.address}:{address.port_value}"
        health[name] = health_check_pb2.DESCRIPTOR.enum_types_by_name["HealthStatus"].values_by_number[
            entry.health_status
        ].name
    return health


def describe(response, size):
    """What an event tells of a response."""
    names, health, collections = [], {}, []
    for resource in response.resources:
        packed = resource.resource if hasattr(resource, "resource") else resource
        if packed.type_url.endswith(".LbEndpoint"):
            names.append(resource.name)
            health.update(health_of([endpoint_components_pb2.LbEndpoint.FromString(packed.value)]))
            continue
        known = TYPES.get(packed.type_url.rsplit("/", 1)[-1])
        if known is None:
            names.append("?")
            continue
        message = known[0].FromString(packed.value)
        names.append(getattr(message, known[1]))
        if isinstance(message, endpoint_pb2.ClusterLoadAssignment):
            for locality in message.endpoints:
                health.update(health_of(locality.lb_endpoints))
                if locality.HasField("leds_cluster_locality_config"):
                    collections.append(locality.leds_cluster_locality_config.leds_collection_name)
    version = getattr(response, "version_info", "") or getattr(response, "system_version_info", "")
    return {
        "type": response.type_url,
        "version": version,
        "nonce": response.nonce,
        "bytes": size,
        "names": names,
        "versions": {r.name: r.version for r in response.resources if hasattr(r, "resource")},
        "removed": list(getattr(response, "removed_resources", [])),
        "health": health,
        "collections": collections,
    }


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def channel_to(target, files):
    if not files:
        return grpc.insecure_channel(target, options=OPTIONS)
    ca, *pair = (contents(path) for path in files)
    cert, key = pair or (None, None)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert), options=OPTIONS)


class Stream:
    """One stream on a channel of its own."""

    def __init__(self, target, files, command):
        self.name = command["stream"]
        method, self.request, self.response = METHODS[command["method"]]
        self.requests = queue.Queue()
        self.channel = channel_to(target, files)
        call = self.channel.stream_stream(
            SERVICE + method, request_serializer=bytes, response_deserializer=bytes
        )
        self.call = call(iter(self.requests.get, None))
        # Ends with the call, or with the process.
        if command.get("read", True):
            threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for data in self.call:
                emit(self.name, "response", **describe(self.response.FromString(data), len(data)))
            emit(self.name, "end", code="OK", details="")
        except grpc.RpcError as error:
            emit(self.name, "end", code=error.code().name, details=error.details())

    def send(self, command):
        request = json_format.ParseDict(command["request"], self.request())
        for number in range(command.get("names", 0)):
            name = f"name-{number}"
            if isinstance(request, discovery_pb2.DiscoveryRequest):
                request.resource_names.append(name)
            else:
                request.resource_names_subscribe.append(name)
        if command.get("padding", 0):
            request.error_detail.code = 3
            request.error_detail.message = "x" * command["padding"]
        self.requests.put(request.SerializeToString())

    def close(self):
        self.requests.put(None)
        self.call.cancel()
        self.channel.close()


def main():
    target, files = sys.argv[1], sys.argv[2:]
    streams = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["stream"]
        if command["op"] == "open":
            streams[name] = Stream(target, files, command)
        elif command["op"] == "send":
            streams[name].send(command)
        elif command["op"] == "close":
            streams.pop(name).close()


main()
