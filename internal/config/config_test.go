package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const good = `
listen:
  unix: /run/oduflow/masterd.sock
  tls: {address: "127.0.0.1:8443", certificate: /etc/oduflow/tls.crt, key: /etc/oduflow/tls.key}
database: /var/lib/oduflow/receipts.db
keys: {signing: /var/lib/oduflow/signing.key, secret: /var/lib/oduflow/secret.key}
salt: {config: /etc/salt/master, user: oduflow}
log: {level: info, format: json}
`

func read(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "masterd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Read(path)
}

func TestReadsAGoodFile(t *testing.T) {
	c, err := read(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.TLS.Address != "127.0.0.1:8443" || c.Salt.User != "oduflow" || c.Lab {
		t.Errorf("read %+v", c)
	}
}

func TestRefusesWithTheKeyInTheMessage(t *testing.T) {
	cases := map[string][2]string{ // what is replaced, and what the message must name
		"unknown key":    {"database: ", "databse: "},
		"root login":     {"user: oduflow", "user: root"},
		"relative path":  {"/run/oduflow/masterd.sock", "run/masterd.sock"},
		"bad address":    {"127.0.0.1:8443", "127.0.0.1"},
		"bad level":      {"level: info", "level: loud"},
		"bad format":     {"format: json", "format: xml"},
		"long socket":    {"/run/oduflow/masterd.sock", "/" + strings.Repeat("x", 120)},
		"missing secret": {"secret: /var/lib/oduflow/secret.key", "secret: ''"},
	}
	named := map[string]string{
		"unknown key": "databse", "root login": "salt.user", "relative path": "listen.unix", "bad address": "listen.tls.address",
		"bad level": "log.level", "bad format": "log.format", "long socket": "listen.unix", "missing secret": "keys.secret",
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, strings.Replace(good, c[0], c[1], 1))
			if problem.CodeOf(err) != problem.BadConfig {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(problem.Outer(err).Message, named[name]) {
				t.Errorf("message %q doesn't name %s", problem.Outer(err).Message, named[name])
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := config.Read("/nowhere/masterd.yaml"); problem.CodeOf(err) != problem.BadConfig {
		t.Fatalf("got %v", err)
	}
}
