package message

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

func sealTo(plain []byte, minionKeyPEM string) ([]byte, error) {
	key, err := parsePublicKey(minionKeyPEM)
	if err != nil {
		return nil, err
	}
	sshKey, err := ssh.NewPublicKey(key)
	if err != nil {
		return nil, problem.Wrap(problem.KeyChanged, err, "the minion's accepted key can't be used")
	}
	recipient, err := agessh.NewRSARecipient(sshKey)
	if err != nil {
		return nil, problem.Wrap(problem.KeyChanged, err, "the minion's accepted key can't be sealed to")
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipient)
	if err != nil {
		return nil, problem.Wrap(problem.Internal, err, "a message can't be sealed")
	}
	if _, err := w.Write(plain); err != nil {
		return nil, problem.Wrap(problem.Internal, err, "a message can't be sealed")
	}
	if err := w.Close(); err != nil {
		return nil, problem.Wrap(problem.Internal, err, "a message can't be sealed")
	}
	return out.Bytes(), nil
}

func openWith(sealed, minionKeyPEM []byte) ([]byte, error) {
	key, err := parsePrivateKey(minionKeyPEM)
	if err != nil {
		return nil, err
	}
	identity, err := agessh.NewRSAIdentity(key)
	if err != nil {
		return nil, problem.Wrap(Unreadable, err, "the minion's own key can't be used")
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), identity)
	if err != nil {
		return nil, problem.Wrap(Unreadable, err, "a message isn't sealed to this minion's key")
	}
	plain, err := io.ReadAll(io.LimitReader(r, MaxMessage+1))
	if err != nil {
		return nil, problem.Wrap(Unreadable, err, "a sealed message is damaged")
	}
	return plain, nil
}

// Fingerprint names a minion's Salt key: the SHA-256 of its DER (PKIX) form, in
// hex. Two PEM spellings of one key give the same.
func Fingerprint(minionKeyPEM string) (string, error) {
	key, err := parsePublicKey(minionKeyPEM)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", problem.Wrap(problem.KeyChanged, err, "the minion's accepted key can't be used")
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

func parsePublicKey(text string) (*rsa.PublicKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, problem.New(problem.KeyChanged, "the minion's accepted key isn't PEM")
	}
	if key, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
		return key, nil
	}
	any, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, problem.Wrap(problem.KeyChanged, err, "the minion's accepted key can't be read")
	}
	key, ok := any.(*rsa.PublicKey)
	if !ok {
		return nil, problem.New(problem.KeyChanged, "the minion's accepted key isn't RSA")
	}
	return key, nil
}

func parsePrivateKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, problem.New(Unreadable, "the minion's own key isn't PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, problem.Wrap(Unreadable, err, "the minion's own key can't be read")
	}
	key, ok := any.(*rsa.PrivateKey)
	if !ok {
		return nil, problem.New(Unreadable, "the minion's own key isn't RSA")
	}
	return key, nil
}
