package sim

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"

	"github.com/oduflow/oduflow-salt/internal/message"
)

// One key for all minions of all schedules: what a key protects is tested
// elsewhere.
var (
	signingKey = ed25519.NewKeyFromSeed(secret[:])
	minionKey  = func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	}()
	minionPEM = func() string {
		der, err := x509.MarshalPKIXPublicKey(&minionKey.PublicKey)
		if err != nil {
			panic(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}()
	signingPublic     = ed25519.PublicKey(signingKey[ed25519.SeedSize:])
	minionFingerprint = func() string {
		f, err := message.Fingerprint(minionPEM)
		if err != nil {
			panic(err)
		}
		return f
	}()
	minionPrivatePEM = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(minionKey)})
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func newUUID(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	return uuid(b), nil
}

func uuid(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
