package manifest_test

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

func key(fill byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{fill}, ed25519.SeedSize))
}

func public(fill byte) ed25519.PublicKey { return key(fill).Public().(ed25519.PublicKey) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "plugins"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "minion-executor"), []byte("one"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "plugins/custom"), []byte("two"), 0o755))
	must(t, manifest.Write(dir, "1.2.3", key(1), "plugins/custom", "minion-executor"))
	return dir
}

func TestWriteAndLoad(t *testing.T) {
	dir := folder(t)
	m, err := manifest.Load(dir, public(1))
	must(t, err)
	if m.Version != manifest.FormatVersion || m.Release != "1.2.3" || len(m.Files) != 2 || m.Files[0].Name != "minion-executor" {
		t.Errorf("loaded %+v", m)
	}
	f, err := m.Find("plugins/custom")
	must(t, err)
	sum, err := manifest.Sum(filepath.Join(dir, "plugins/custom"))
	must(t, err)
	if f.Size != 3 || !bytes.Equal(f.Sum(), sum) {
		t.Errorf("the file is %+v", f)
	}
	if _, err := m.Find("plugins/role"); problem.CodeOf(err) != manifest.Missing {
		t.Error(err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, spoil := range map[string]func(dir string){
		"another key": func(dir string) { must(t, manifest.Write(dir, "1", key(2), "minion-executor")) },
		"a changed byte": func(dir string) {
			edit(t, dir, "manifest.json", func(b []byte) []byte { return bytes.Replace(b, []byte("1.2.3"), []byte("1.2.4"), 1) })
		},
		"a space more": func(dir string) { edit(t, dir, "manifest.json", func(b []byte) []byte { return append(b, ' ') }) },
		"no signature": func(dir string) { edit(t, dir, "manifest.sig", func([]byte) []byte { return nil }) },
		"no base64":    func(dir string) { edit(t, dir, "manifest.sig", func([]byte) []byte { return []byte("!") }) },
		"too large": func(dir string) {
			edit(t, dir, "manifest.json", func(b []byte) []byte { return append(b, make([]byte, 2<<20)...) })
		},
	} {
		dir := folder(t)
		spoil(dir)
		if _, err := manifest.Load(dir, public(1)); problem.CodeOf(err) != manifest.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := folder(t)
	must(t, os.Remove(filepath.Join(dir, "manifest.sig")))
	if _, err := manifest.Load(dir, public(1)); problem.CodeOf(err) != manifest.Missing {
		t.Error(err)
	}
	if _, err := manifest.Load(folder(t), nil); problem.CodeOf(err) != manifest.Invalid {
		t.Error("no pinned key:", err)
	}
}

func edit(t *testing.T, dir, name string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	raw, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, change(raw), 0o644))
}

// What is signed still has to be in form: a name never leads out of the folder.
func TestSignRefuses(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for name, m := range map[string]*manifest.Manifest{
		"up":         {Version: 1, Files: []manifest.File{{Name: "../x", SHA256: sum}}},
		"absolute":   {Version: 1, Files: []manifest.File{{Name: "/x", SHA256: sum}}},
		"empty":      {Version: 1, Files: []manifest.File{{Name: "", SHA256: sum}}},
		"unclean":    {Version: 1, Files: []manifest.File{{Name: "a//b", SHA256: sum}}},
		"twice":      {Version: 1, Files: []manifest.File{{Name: "a", SHA256: sum}, {Name: "a", SHA256: sum}}},
		"no digest":  {Version: 1, Files: []manifest.File{{Name: "a"}}},
		"upper case": {Version: 1, Files: []manifest.File{{Name: "a", SHA256: strings.ToUpper(sum)}}},
		"version":    {Version: 2},
	} {
		if _, _, err := manifest.Sign(m, key(1)); problem.CodeOf(err) != manifest.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	signed := func(raw string) []byte {
		// Signed by the right key, outside of Sign.
		return ed25519.Sign(key(1), append([]byte("oduflow-salt manifest v1\x00"), raw...))
	}
	for _, raw := range []string{`{"version":1,"release":"","files":[],"more":1}`, `[]`, ``, `{"version":9}`} {
		if _, err := manifest.Verify([]byte(raw), []byte(base64Text(signed(raw))), public(1)); problem.CodeOf(err) != manifest.Invalid {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
