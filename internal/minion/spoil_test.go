package minion_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
)

// rewrite replaces a file by one of the same size with its last byte changed.
func rewrite(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	raw[len(raw)-1] ^= 1
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, raw, 0o755))
}

func otherKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return key
}

// signOther signs a manifest in which the executor has another digest.
func signOther(t *testing.T, k *miniontest.Kit) {
	t.Helper()
	m, err := manifest.Build(k.Facts.LibDir, "test", "minion-executor", "plugins/custom", "other")
	must(t, err)
	for i := range m.Files {
		if m.Files[i].Name == "minion-executor" {
			other, err := m.Find("other")
			must(t, err)
			m.Files[i].SHA256, m.Files[i].Size = other.SHA256, other.Size
		}
	}
	raw, sig, err := manifest.Sign(m, k.Releases)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(k.Facts.LibDir, manifest.FileName), raw, 0o644))
	must(t, os.WriteFile(filepath.Join(k.Facts.LibDir, manifest.SignatureName), sig, 0o644))
}
