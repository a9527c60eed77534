//! The socket under a connection to an endpoint, with TLS or without.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use super::upstream::AttemptError;
use crate::endpoint::Endpoint;

/// See the module.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Connects to `endpoint` within `limit`, TLS included.
    ///
    /// # Errors
    ///
    /// [`AttemptError::Connect`] and [`AttemptError::ConnectTimeout`].
    pub(crate) async fn open(
        endpoint: &Endpoint,
        limit: Duration,
        mark: Option<Mark>,
    ) -> Result<Self, AttemptError> {
        let opening = async {
            let stream = match endpoint.socket_address() {
                Some(address) => connect(address, mark).await?,
                None => TcpStream::connect((endpoint.host(), endpoint.port())).await?,
            };
            stream.set_nodelay(true)?;
            match endpoint.tls() {
                None => Ok(Self::Plain(stream)),
                Some(tls) => Ok(Self::Tls(Box::new(tls.connect(stream).await?))),
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

/// What the kernel programs know our connections by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Mark(pub(crate) u32);

async fn connect(address: SocketAddr, mark: Option<Mark>) -> io::Result<TcpStream> {
    let Some(Mark(mark)) = mark else { return TcpStream::connect(address).await };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket2::SockRef::from(&socket).set_mark(mark)?;
    socket.connect(address).await
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
