package keyfile_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	secret := bytes.Repeat([]byte{3}, keyfile.SecretSize)
	paths := map[string]string{}
	for _, name := range []string{"private", "public", "secret"} {
		paths[name] = filepath.Join(dir, name)
	}
	must(t, keyfile.WritePrivate(paths["private"], private))
	must(t, keyfile.WritePublic(paths["public"], public))
	must(t, keyfile.WriteSecret(paths["secret"], secret))
	gotPrivate, err := keyfile.ReadPrivate(paths["private"])
	must(t, err)
	gotPublic, err := keyfile.ReadPublic(paths["public"])
	must(t, err)
	gotSecret, err := keyfile.ReadSecret(paths["secret"])
	must(t, err)
	if !gotPrivate.Equal(private) || !gotPublic.Equal(public) || !bytes.Equal(gotSecret, secret) {
		t.Error("what was read isn't what was written")
	}
	for name, mode := range map[string]os.FileMode{"private": 0o600, "public": 0o644, "secret": 0o600} {
		info, err := os.Stat(paths[name])
		must(t, err)
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 3 {
		t.Errorf("%d files are left", len(left))
	}
	for name, write := range map[string]func() error{
		"private": func() error { return keyfile.WritePrivate(paths["private"], private) },
		"public":  func() error { return keyfile.WritePublic(paths["public"], public) },
		"secret":  func() error { return keyfile.WriteSecret(paths["secret"], secret) },
	} {
		if err := write(); problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s is replaced: %v", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	for name, c := range map[string]struct {
		make func(path string) error
		read func(path string) error
	}{
		"group reads a private key": {
			func(p string) error { return chmod(keyfile.WritePrivate(p, private), p, 0o640) },
			func(p string) error { _, err := keyfile.ReadPrivate(p); return err },
		},
		"others read a secret": {
			func(p string) error { return chmod(keyfile.WriteSecret(p, make([]byte, 32)), p, 0o604) },
			func(p string) error { _, err := keyfile.ReadSecret(p); return err },
		},
		"group writes a public key": {
			func(p string) error { return chmod(keyfile.WritePublic(p, public), p, 0o664) },
			func(p string) error { _, err := keyfile.ReadPublic(p); return err },
		},
		"somebody else's": {
			func(p string) error {
				err := keyfile.WritePrivate(p, private)
				if os.Geteuid() != 0 {
					t.Log("not root: somebody else's file isn't tried")
					return os.Remove(p)
				}
				if err == nil {
					err = os.Chown(p, 12345, 0)
				}
				return err
			},
			func(p string) error { _, err := keyfile.ReadPrivate(p); return err },
		},
		"a public key in a private file's place": {
			func(p string) error { return chmod(keyfile.WritePublic(p, public), p, 0o600) },
			func(p string) error { _, err := keyfile.ReadPrivate(p); return err },
		},
		"garbage": {
			func(p string) error { return os.WriteFile(p, []byte("garbage"), 0o600) },
			func(p string) error { _, err := keyfile.ReadPublic(p); return err },
		},
		"a short secret": {
			func(p string) error {
				return os.WriteFile(p, []byte("-----BEGIN ODUFLOW SALT SECRET-----\nAAAA\n-----END ODUFLOW SALT SECRET-----\n"), 0o600)
			},
			func(p string) error { _, err := keyfile.ReadSecret(p); return err },
		},
		"nothing": {
			func(string) error { return nil },
			func(p string) error { _, err := keyfile.ReadSecret(p); return err },
		},
		"a folder": {
			func(p string) error { return os.Mkdir(p, 0o700) },
			func(p string) error { _, err := keyfile.ReadSecret(p); return err },
		},
	} {
		path := filepath.Join(dir, name)
		must(t, c.make(path))
		if err := c.read(path); problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := keyfile.WriteSecret(filepath.Join(dir, "short"), []byte("x")); err == nil {
		t.Error("a short secret is written")
	}
}

func chmod(err error, path string, mode os.FileMode) error {
	if err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// The files are those of openssl, so that an operator can look at them.
func TestOpenSSLReadsThem(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl")
	}
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	must(t, keyfile.WritePrivate(filepath.Join(dir, "k"), private))
	must(t, keyfile.WritePublic(filepath.Join(dir, "p"), public))
	derived, err := exec.CommandContext(t.Context(), "openssl", "pkey", "-in", filepath.Join(dir, "k"), "-pubout").Output()
	must(t, err)
	own, err := os.ReadFile(filepath.Join(dir, "p"))
	must(t, err)
	if !bytes.Equal(derived, own) {
		t.Errorf("openssl derives %s, and we wrote %s", derived, own)
	}
}
