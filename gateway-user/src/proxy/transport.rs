//! The socket under a connection to an endpoint, with TLS or without.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_common::splice::MARK_UPSTREAM;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use super::upstream::AttemptError;
use crate::carrier::Carriers;
use crate::endpoint::Endpoint;
use crate::sk_msg::Upstream;

/// See the module.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Connects to `endpoint` within `limit`, TLS included, so that `carriers` may carry
    /// what comes from there.
    ///
    /// # Errors
    ///
    /// [`AttemptError::Connect`] and [`AttemptError::ConnectTimeout`].
    pub(crate) async fn open(
        endpoint: &Endpoint,
        limit: Duration,
        carriers: &Carriers,
    ) -> Result<(Self, Option<Upstream>), AttemptError> {
        let opening = async {
            let (stream, local) = match endpoint.socket_address() {
                Some(address) => connect(address, carriers).await?,
                None => (TcpStream::connect((endpoint.host(), endpoint.port())).await?, None),
            };
            stream.set_nodelay(true)?;
            match endpoint.tls() {
                None => Ok((Self::Plain(stream), local)),
                Some(tls) => Ok((Self::Tls(Box::new(tls.connect(stream).await?)), None)),
            }
        };
        match tokio::time::timeout(limit, opening).await {
            Ok(opened) => opened.map_err(AttemptError::Connect),
            Err(_) => Err(AttemptError::ConnectTimeout(limit)),
        }
    }

    /// The socket, when nothing stands between it and the bytes of HTTP.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(_) => None,
        }
    }

    /// Lets the kernel delay acknowledgements of small segments.
    ///
    /// It acknowledges each chunk of a stream at once otherwise, which costs about as
    /// much as reading it. Only for engines that switch Nagle's algorithm off: one
    /// that does not would wait for the acknowledgement with its next chunk.
    pub(crate) fn delay_acks(&self) {
        let socket = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        // An optimisation: without it everything works the same.
        let _ = socket2::SockRef::from(socket).set_tcp_quickack(false);
    }
}

async fn connect(
    address: SocketAddr,
    carriers: &Carriers,
) -> io::Result<(TcpStream, Option<Upstream>)> {
    if !carriers.any() {
        return Ok((TcpStream::connect(address).await?, None));
    }
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The kernel programs know our connections by it.
    socket2::SockRef::from(&socket).set_mark(MARK_UPSTREAM)?;
    let local = carriers.sk_msg.as_ref().and_then(|maps| maps.want(&socket));
    Ok((socket.connect(address).await?, local))
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
