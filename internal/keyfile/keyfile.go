// Package keyfile reads and writes the files that hold our own keys: ed25519
// keys as PEM, the way openssl writes them too (PKCS #8 and PKIX), and 32-byte
// secrets as PEM of our own type.
//
// A private file is created with mode 0600, whole or not at all, and never
// replaced. Reading one refuses a file that its group or others may read, or
// that somebody else than root or the reader owns. A public file is not
// secret, but whoever may write it decides whom we trust: it is refused if
// group or others may write it.
package keyfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// SecretSize is the size of a secret in bytes.
const SecretSize = 32

const (
	privateType = "PRIVATE KEY"
	publicType  = "PUBLIC KEY"
	secretType  = "ODUFLOW SALT SECRET" //nolint:gosec // a PEM type, no secret

	maxFile = 16 << 10
)

// WritePrivate creates path with a private key. It fails where path exists.
func WritePrivate(path string, key ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return problem.Wrap(problem.Internal, err, "a private key can't be encoded")
	}
	return create(path, 0o600, privateType, der)
}

// ReadPrivate reads what WritePrivate wrote.
func ReadPrivate(path string) (ed25519.PrivateKey, error) {
	der, err := read(path, 0o077, privateType)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "%s holds no private key", path)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, problem.New(problem.BadConfig, "%s holds a key that isn't ed25519", path)
	}
	return key, nil
}

// WritePublic creates path with a public key, mode 0644. It fails where path
// exists.
func WritePublic(path string, key ed25519.PublicKey) error {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return problem.Wrap(problem.Internal, err, "a public key can't be encoded")
	}
	return create(path, 0o644, publicType, der)
}

// ReadPublic reads what WritePublic wrote.
func ReadPublic(path string) (ed25519.PublicKey, error) {
	der, err := read(path, 0o022, publicType)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "%s holds no public key", path)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, problem.New(problem.BadConfig, "%s holds a key that isn't ed25519", path)
	}
	return key, nil
}

// WriteSecret creates path with a secret of SecretSize bytes. It fails where
// path exists.
func WriteSecret(path string, secret []byte) error {
	if len(secret) != SecretSize {
		return problem.New(problem.Internal, "a secret has %d bytes, and not %d", len(secret), SecretSize)
	}
	return create(path, 0o600, secretType, secret)
}

// ReadSecret reads what WriteSecret wrote.
func ReadSecret(path string) ([]byte, error) {
	secret, err := read(path, 0o077, secretType)
	if err != nil {
		return nil, err
	}
	if len(secret) != SecretSize {
		return nil, problem.New(problem.BadConfig, "%s holds no secret of %d bytes", path, SecretSize)
	}
	return secret, nil
}

// create writes a temporary file beside path, syncs it and links it: a crash
// leaves the whole file or none, and an existing file is never touched.
func create(path string, mode os.FileMode, kind string, content []byte) error {
	var suffix [8]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return problem.Wrap(problem.Internal, err, "%s can't be written", path)
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+hex.EncodeToString(suffix[:]))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return problem.Wrap(problem.BadConfig, err, "%s can't be written", path)
	}
	defer func() { _ = os.Remove(temp) }()
	err = errors.Join(
		f.Chmod(mode), // whatever the umask is
		pem.Encode(f, &pem.Block{Type: kind, Bytes: content}),
		f.Sync(),
		f.Close(),
	)
	if err == nil {
		err = os.Link(temp, path)
	}
	if err != nil {
		return problem.Wrap(problem.BadConfig, err, "%s can't be written", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return problem.Wrap(problem.BadConfig, err, "%s can't be written", path)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil {
		return problem.Wrap(problem.BadConfig, err, "%s can't be written", path)
	}
	return nil
}

// read gives the content of the one PEM block of a file, and refuses a file
// with any mode bit of forbidden.
func read(path string, forbidden os.FileMode, kind string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "%s can't be read", path)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "%s can't be read", path)
	}
	if !info.Mode().IsRegular() {
		return nil, problem.New(problem.BadConfig, "%s isn't a file", path)
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return nil, problem.New(problem.BadConfig, "%s has mode %04o, which lets others at it", path, mode).
			WithHint("chmod %04o it", 0o600&^forbidden|mode&^forbidden)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return nil, problem.New(problem.BadConfig, "%s belongs to user %d", path, owner.Uid).
			WithHint("it has to belong to root or to the user of this program")
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "%s can't be read", path)
	}
	block, rest := pem.Decode(raw)
	if len(raw) > maxFile || block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) != 0 {
		return nil, problem.New(problem.BadConfig, "%s isn't one PEM block of type %s", path, kind)
	}
	return block.Bytes, nil
}
