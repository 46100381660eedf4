//! Who may read the admin API: a bearer token where there is one, a certificate where clients are asked for them.
//!
//! In: requests. Out: those that are admitted; 401 or 403, a count and a line in the log for the others. `/healthz` and
//! `/readyz` say to everybody whether the server lives and is ready, because whoever asks that (Kubernetes, a load
//! balancer) has neither; what is wrong with the configuration `/readyz` tells those who are admitted alone.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use crate::metrics::connections::Refused;
use crate::transport::{Peer, Token};

/// What a request must bring.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The token; it changes with its file.
    pub token: Option<watch::Receiver<Token>>,
    /// Whether the client must have shown a certificate, which TLS has verified.
    pub certificate: bool,
}

/// Whether a request brought it; for what is told to everybody, in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted(pub(super) bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Certificate,
    Token,
}

impl Access {
    fn missing(&self, has_certificate: bool, authorization: Option<&[u8]>) -> Option<Missing> {
        if self.certificate && !has_certificate {
            return Some(Missing::Certificate);
        }
        let token = self.token.as_ref()?;
        (!token.borrow().admits(authorization)).then_some(Missing::Token)
    }
}

pub(super) async fn guard(
    State(access): State<Access>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>();
    let missing = access.missing(
        peer.is_some_and(|peer| peer.identity().is_some()),
        request
            .headers()
            .get(header::AUTHORIZATION)
            .map(|value| value.as_bytes()),
    );
    let path = request.uri().path();
    let Some(missing) = missing.filter(|_| !["/healthz", "/readyz"].contains(&path)) else {
        request.extensions_mut().insert(Admitted(missing.is_none()));
        return next.run(request).await;
    };
    let (reason, why, answer) = match missing {
        Missing::Certificate => (
            Refused::NoCertificate,
            "the admin API wants a client certificate, and none was shown",
            (StatusCode::FORBIDDEN, "a client certificate is wanted\n").into_response(),
        ),
        Missing::Token => {
            let headers = [(header::WWW_AUTHENTICATE, "Bearer")];
            let (why, told) = match request.headers().contains_key(header::AUTHORIZATION) {
                true => (
                    "the request bears another token than the admin API's",
                    "this is not the admin token\n",
                ),
                false => ("the request bears no token", "the admin token is wanted\n"),
            };
            let answer = (StatusCode::UNAUTHORIZED, headers, told);
            (Refused::Token, why, answer.into_response())
        }
    };
    if let Some(peer) = peer {
        let shown: String = path.chars().take(64).collect();
        peer.refuse(reason, &format!("{why} ({} {shown:?})", request.method()));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_is_wanted_must_be_brought() {
        let (_sender, token) = watch::channel(Token::new("0123456789abcdef").unwrap());
        let good = Some(&b"Bearer 0123456789abcdef"[..]);
        let open = Access::default();
        assert_eq!(open.missing(false, None), None);
        let both = Access {
            token: Some(token.clone()),
            certificate: true,
        };
        assert_eq!(both.missing(false, good), Some(Missing::Certificate));
        assert_eq!(both.missing(true, None), Some(Missing::Token));
        assert_eq!(both.missing(true, good), None);
        let token = Access {
            token: Some(token),
            certificate: false,
        };
        assert_eq!(
            token.missing(true, None),
            Some(Missing::Token),
            "a certificate is no token"
        );
        assert_eq!(token.missing(false, good), None);
    }

    #[test]
    fn a_new_token_counts_at_once() {
        let (sender, token) = watch::channel(Token::new("0123456789abcdef").unwrap());
        let access = Access {
            token: Some(token),
            certificate: false,
        };
        let old = Some(&b"Bearer 0123456789abcdef"[..]);
        sender.send_replace(Token::new("fedcba9876543210").unwrap());
        assert_eq!(access.missing(false, old), Some(Missing::Token));
        let new = Some(&b"Bearer fedcba9876543210"[..]);
        assert_eq!(access.missing(false, new), None);
    }
}
