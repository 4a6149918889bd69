package saltreq

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Fingerprint is the SHA-256 of the key itself (DER, SubjectPublicKeyInfo) in
// hex. It doesn't depend on line ends, headers or the PEM form: Salt writes
// both PKCS#1 and PKIX. It is not what `salt-key -f` prints, which hashes text.
func Fingerprint(pemText string) (string, error) {
	block, _ := pem.Decode([]byte(pemText))
	if block == nil {
		return "", problem.New(problem.Internal, "a minion's key isn't PEM")
	}
	key, err := parsePublicKey(block.Bytes)
	if err != nil {
		return "", problem.Wrap(problem.Internal, err, "a minion's key can't be read")
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", problem.Wrap(problem.Internal, err, "a minion's key can't be encoded")
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

func parsePublicKey(der []byte) (any, error) {
	if key, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return (*rsa.PublicKey)(key), nil
	}
	return x509.ParsePKIXPublicKey(der)
}
