package saltreq

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ".oduflow_key")
	write := func(text string, mode os.FileMode) {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a2V5+/==", 0o600)
	if got, err := readKey(path, os.Geteuid()); err != nil || got != "a2V5+/==" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := readKey(path, os.Geteuid()+1); err == nil {
		t.Error("a key of another user was read")
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o660, 0o644, 0o610} {
		write("a2V5", mode)
		if _, err := readKey(path, os.Geteuid()); err == nil {
			t.Errorf("mode %o was taken", mode)
		}
	}
	for _, text := range []string{"", strings.Repeat("a", maxKey+1), "a\n", "a b", "a\x00"} {
		write(text, 0o600)
		if _, err := readKey(path, os.Geteuid()); err == nil {
			t.Errorf("%.10q was taken for a key", text)
		}
	}
	write("a2V5", 0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, fifo, dir, filepath.Join(dir, "none")} {
		if _, err := readKey(p, os.Geteuid()); err == nil {
			t.Errorf("%s was read", p)
		}
	}
}
