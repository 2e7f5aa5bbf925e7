package lab

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certificate is a self-signed certificate and its key in one PEM file, as FreeSWITCH keeps them. It is made once a process.
var certificate = sync.OnceValues(func() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	for kind, content := range map[string][]byte{"CERTIFICATE": signed, "PRIVATE KEY": private} {
		if err := pem.Encode(&file, &pem.Block{Type: kind, Bytes: content}); err != nil {
			return nil, err
		}
	}
	return file.Bytes(), nil
})

// writeCertificates puts the certificates for DTLS and MSRP into a switch's folder. Without them every first start computes two RSA
// keys, which costs seconds of processor time (switch_core_cert.c, switch_core_gen_certs) for something that no test uses.
func writeCertificates(folder string) error {
	content, err := certificate()
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	for _, name := range []string{"dtls-srtp.pem", "wss.pem"} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return fmt.Errorf("write a certificate: %w", err)
		}
	}
	return nil
}
