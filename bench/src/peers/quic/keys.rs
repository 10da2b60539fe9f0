//! TLS 1.3 for the bench: a new key as the server's identity (RFC 7250), and AES-128-GCM.

use std::fmt;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::endpoint::failed;
use crate::error::Error;

/// Returns `rustls` over `ring` with the cipher of Oikaze only, so that both peers choose it.
fn aes_128_gcm() -> Arc<CryptoProvider> {
    let cipher_suites = vec![provider::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..provider::default_provider() })
}

/// Returns the server's side of TLS, with a key made for this process.
pub fn server() -> Result<Arc<QuicServerConfig>, Error> {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let key = key.map_err(|why| failed("making a key", &why))?;
    let crypto = aes_128_gcm();
    let key = PrivatePkcs8KeyDer::from(key.as_ref().to_vec()).into();
    let key = crypto.key_provider.load_private_key(key);
    let key = key.map_err(|why| failed("loading a key", &why))?;
    let public = key.public_key().ok_or_else(|| Error::new("a key of QUIC has no public part"))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    let identity = Arc::new(CertifiedKey::new(vec![public], key));
    let config = rustls::ServerConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])
        .map_err(|why| failed("choosing TLS 1.3", &why))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity)));
    let config = QuicServerConfig::try_from(config);
    config.map(Arc::new).map_err(|why| failed("choosing ciphers", &why))
}

/// Returns the client's side of TLS, which trusts any server.
pub fn client() -> Result<Arc<QuicClientConfig>, Error> {
    let crypto = aes_128_gcm();
    let verifier = AnyServer(crypto.signature_verification_algorithms);
    let config = rustls::ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])
        .map_err(|why| failed("choosing TLS 1.3", &why))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let config = QuicClientConfig::try_from(config);
    config.map(Arc::new).map_err(|why| failed("choosing ciphers", &why))
}

/// Accepts the key of any server. The bench's two ends know each other by the lab's wire.
struct AnyServer(WebPkiSupportedAlgorithms);

impl fmt::Debug for AnyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyServer")
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
