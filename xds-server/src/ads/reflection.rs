//! `grpc.reflection.v1.ServerReflection`: what tools such as grpcurl need to speak to this server and to read what it says;
//! and its older form `v1alpha`, which is the same on the wire, for tools that know no other.
//!
//! In: names of files and symbols. Out: descriptors, of Envoy's protos (the ones that the configuration is read with) and of
//! the health and reflection services. They are decoded when the first client asks; who never asks costs nothing. Nothing
//! that a fleet is served can be learnt here.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, FileDescriptor};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_reflection::pb::v1 as pb;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::server_reflection_server::{
    ServerReflection, ServerReflectionServer,
};
use tonic_reflection::pb::v1alpha::{self, server_reflection_server as older};

use super::converse::{Responses, converse};
use crate::config::envoy_descriptors;

/// The descriptors of what is not Envoy's. `None` cannot happen: they are compiled in, and a test reads them.
static OTHERS: LazyLock<Option<DescriptorPool>> = LazyLock::new(|| {
    let mut pool = DescriptorPool::decode(tonic_health::pb::FILE_DESCRIPTOR_SET).ok()?;
    let reflection = tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET;
    pool.decode_file_descriptor_set(reflection).ok()?;
    pool.decode_file_descriptor_set(v1alpha::FILE_DESCRIPTOR_SET)
        .ok()?;
    Some(pool)
});

/// The most bytes of a name that is looked up.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Both services, by their full names.
pub(crate) const NAMES: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

#[derive(Debug)]
pub(crate) struct Reflection {
    /// The services that the listener has.
    names: &'static [&'static str],
    stopping: watch::Receiver<bool>,
}

/// The service, on a listener with services of these names.
pub(crate) fn service(
    names: &'static [&'static str],
    stopping: watch::Receiver<bool>,
) -> ServerReflectionServer<Reflection> {
    ServerReflectionServer::new(Reflection { names, stopping })
        .max_decoding_message_size(MAX_REQUEST_BYTES)
}

/// The same in its older form.
pub(crate) fn older_service(
    names: &'static [&'static str],
    stopping: watch::Receiver<bool>,
) -> older::ServerReflectionServer<Reflection> {
    older::ServerReflectionServer::new(Reflection { names, stopping })
        .max_decoding_message_size(MAX_REQUEST_BYTES)
}

#[tonic::async_trait]
impl older::ServerReflection for Reflection {
    type ServerReflectionInfoStream = Responses<v1alpha::ServerReflectionResponse>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<v1alpha::ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let names = self.names;
        let answers = converse(request.into_inner(), self.stopping.clone(), |request| {
            let request = same_on_the_wire(&request)?;
            same_on_the_wire(&answer(names, request))
        });
        Ok(Response::new(answers))
    }
}

/// Reads one message as another that has the same fields.
fn same_on_the_wire<A: Message, B: Message + Default>(message: &A) -> Result<B, Status> {
    // Cannot fail: v1 is v1alpha under another name.
    B::decode(&*message.encode_to_vec()).map_err(|error| Status::internal(error.to_string()))
}

#[tonic::async_trait]
impl ServerReflection for Reflection {
    type ServerReflectionInfoStream = Responses<pb::ServerReflectionResponse>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<pb::ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let names = self.names;
        let answers = converse(request.into_inner(), self.stopping.clone(), |request| {
            Ok(answer(names, request))
        });
        Ok(Response::new(answers))
    }
}

fn answer(names: &[&str], request: pb::ServerReflectionRequest) -> pb::ServerReflectionResponse {
    let found = match &request.message_request {
        Some(MessageRequest::ListServices(_)) => Ok(services(names)),
        Some(MessageRequest::FileByFilename(name)) => {
            file(name, |pool| pool.get_file_by_name(name))
        }
        Some(MessageRequest::FileContainingSymbol(symbol)) => {
            file(symbol, |pool| containing(pool, symbol))
        }
        Some(MessageRequest::FileContainingExtension(wanted)) => {
            file(&wanted.containing_type, |pool| extension(pool, wanted))
        }
        Some(MessageRequest::AllExtensionNumbersOfType(name)) => extension_numbers(name),
        None => Err((
            Code::InvalidArgument,
            "the request asks for nothing; set one of message_request".to_owned(),
        )),
    };
    let message = found.unwrap_or_else(|(code, error_message)| {
        MessageResponse::ErrorResponse(pb::ErrorResponse {
            error_code: i32::from(code),
            error_message,
        })
    });
    pb::ServerReflectionResponse {
        valid_host: request.host.clone(),
        original_request: Some(request),
        message_response: Some(message),
    }
}

type Found = Result<MessageResponse, (Code, String)>;

fn services(names: &[&str]) -> MessageResponse {
    let service = names.iter().map(|name| pb::ServiceResponse {
        name: (*name).into(),
    });
    MessageResponse::ListServicesResponse(pb::ListServiceResponse {
        service: service.collect(),
    })
}

/// The first of what a look into each pool finds.
fn look<T>(find: impl Fn(&DescriptorPool) -> Option<T>) -> Option<T> {
    let envoys = envoy_descriptors().and_then(&find);
    envoys.or_else(|| OTHERS.as_ref().and_then(find))
}

fn file(name: &str, find: impl Fn(&DescriptorPool) -> Option<FileDescriptor>) -> Found {
    let file = look(find).ok_or_else(|| unknown(name))?;
    Ok(MessageResponse::FileDescriptorResponse(
        pb::FileDescriptorResponse {
            file_descriptor_proto: vec![file.encode_to_vec()],
        },
    ))
}

fn unknown(name: &str) -> (Code, String) {
    (Code::NotFound, format!("{name:?} is not known here"))
}

/// The file of a message, enum, service, extension, method, field or enum value.
fn containing(pool: &DescriptorPool, symbol: &str) -> Option<FileDescriptor> {
    let declared = |name: &str| {
        let message = pool.get_message_by_name(name).map(|m| m.parent_file());
        message
            .or_else(|| pool.get_enum_by_name(name).map(|e| e.parent_file()))
            .or_else(|| pool.get_service_by_name(name).map(|s| s.parent_file()))
            .or_else(|| pool.get_extension_by_name(name).map(|e| e.parent_file()))
    };
    declared(symbol).or_else(|| {
        let (parent, member) = symbol.rsplit_once('.')?;
        let has_member = pool
            .get_message_by_name(parent)
            .is_some_and(|m| m.get_field_by_name(member).is_some())
            || pool
                .get_enum_by_name(parent)
                .is_some_and(|e| e.get_value_by_name(member).is_some())
            || pool
                .get_service_by_name(parent)
                .is_some_and(|s| s.methods().any(|method| method.name() == member));
        has_member.then(|| declared(parent)).flatten()
    })
}

fn extension(pool: &DescriptorPool, wanted: &pb::ExtensionRequest) -> Option<FileDescriptor> {
    let number = u32::try_from(wanted.extension_number).ok()?;
    let message = pool.get_message_by_name(&wanted.containing_type)?;
    Some(message.get_extension(number)?.parent_file())
}

fn extension_numbers(name: &str) -> Found {
    let numbers = |pool: &DescriptorPool| {
        let message = pool.get_message_by_name(name)?;
        let numbers = message.extensions().map(|extension| extension.number());
        Some(
            numbers
                .filter_map(|number| i32::try_from(number).ok())
                .collect(),
        )
    };
    let extension_number = look(numbers).ok_or_else(|| unknown(name))?;
    Ok(MessageResponse::AllExtensionNumbersResponse(
        pb::ExtensionNumberResponse {
            base_type_name: name.into(),
            extension_number,
        },
    ))
}

#[cfg(test)]
mod tests {
    use prost_reflect::prost_types::FileDescriptorProto;

    use super::*;
    use crate::ads::services::SERVICES;

    fn ask(request: MessageRequest) -> MessageResponse {
        let request = pb::ServerReflectionRequest {
            host: "here".into(),
            message_request: Some(request),
        };
        let response = answer(&SERVICES, request.clone());
        assert_eq!(response.original_request, Some(request));
        response.message_response.unwrap()
    }

    fn file_of(request: MessageRequest) -> String {
        let MessageResponse::FileDescriptorResponse(response) = ask(request) else {
            panic!("a file")
        };
        let file = FileDescriptorProto::decode(&*response.file_descriptor_proto[0]).unwrap();
        file.name().to_owned()
    }

    #[test]
    fn every_service_of_the_listener_is_listed_and_described() {
        let MessageResponse::ListServicesResponse(list) =
            ask(MessageRequest::ListServices(String::new()))
        else {
            panic!("a list")
        };
        assert_eq!(list.service.len(), SERVICES.len());
        for service in list.service {
            let file = file_of(MessageRequest::FileContainingSymbol(service.name));
            assert_eq!(file_of(MessageRequest::FileByFilename(file.clone())), file);
        }
    }

    #[test]
    fn every_file_that_a_service_needs_is_there() {
        let mut files: Vec<String> = SERVICES
            .iter()
            .map(|name| file_of(MessageRequest::FileContainingSymbol((*name).into())))
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(name) = files.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let MessageResponse::FileDescriptorResponse(response) =
                ask(MessageRequest::FileByFilename(name.clone()))
            else {
                panic!("{name} is missing")
            };
            let file = FileDescriptorProto::decode(&*response.file_descriptor_proto[0]).unwrap();
            files.extend(file.dependency);
        }
        assert!(seen.len() > SERVICES.len());
    }

    #[test]
    fn members_are_found_by_what_they_are_members_of() {
        for symbol in [
            "envoy.config.cluster.v3.Cluster",
            "envoy.config.cluster.v3.Cluster.name",
            "envoy.config.core.v3.HealthStatus",
            "envoy.service.discovery.v3.AggregatedDiscoveryService.StreamAggregatedResources",
            "grpc.health.v1.Health.Check",
        ] {
            file_of(MessageRequest::FileContainingSymbol(symbol.into()));
        }
    }

    #[test]
    fn extensions_are_found_by_number() {
        let name = "google.protobuf.FieldOptions";
        let MessageResponse::AllExtensionNumbersResponse(all) =
            ask(MessageRequest::AllExtensionNumbersOfType(name.into()))
        else {
            panic!("numbers")
        };
        let extension_number = all.extension_number[0];
        file_of(MessageRequest::FileContainingExtension(
            pb::ExtensionRequest {
                containing_type: name.into(),
                extension_number,
            },
        ));
    }

    #[test]
    fn what_is_not_known_is_an_error_and_not_the_end() {
        for request in [
            MessageRequest::FileByFilename("no.proto".into()),
            MessageRequest::FileContainingSymbol("no.such.Symbol".into()),
            MessageRequest::FileContainingSymbol("envoy.config.cluster.v3.Cluster.no".into()),
            MessageRequest::AllExtensionNumbersOfType("no.Such".into()),
        ] {
            let MessageResponse::ErrorResponse(error) = ask(request) else {
                panic!("an error")
            };
            assert_eq!(error.error_code, i32::from(Code::NotFound));
        }
        let nothing = answer(&SERVICES, pb::ServerReflectionRequest::default());
        assert!(matches!(
            nothing.message_response,
            Some(MessageResponse::ErrorResponse(_))
        ));
    }
}
