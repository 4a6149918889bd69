// Package config reads masterd's one configuration file. Reading it has no
// side effects, so `masterd serve --check` is safe beside a running daemon.
package config

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// DefaultPath is where the packages put the file.
const DefaultPath = "/etc/oduflow/masterd.yaml"

// Config of masterd. Paths are absolute.
type Config struct {
	Listen   Listen `yaml:"listen"`
	Database string `yaml:"database"` // receipts; private
	Keys     Keys   `yaml:"keys"`
	Salt     Salt   `yaml:"salt"`
	Log      Log    `yaml:"log"`
	// Lab lets masterd's own user do what else only uid 0 may (adopt, token).
	Lab bool `yaml:"lab"`
}

// Listen says where masterd answers. TLS is optional, the Unix socket is not.
type Listen struct {
	Unix string `yaml:"unix"`
	TLS  *TLS   `yaml:"tls"`
}

// TLS is the listener for callers with a bearer token.
type TLS struct {
	Address     string `yaml:"address"` // host:port
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Keys are files that `masterd init` makes, mode 0600.
type Keys struct {
	Signing string `yaml:"signing"` // ed25519, signs every message to a minion
	Secret  string `yaml:"secret"`  // 32 bytes, result keys are derived from it
}

// Salt says how to reach the Salt master beside masterd.
type Salt struct {
	Config string `yaml:"config"` // Salt's own master configuration file
	User   string `yaml:"user"`   // the publisher_acl name that masterd logs in as
}

// Log of masterd goes to standard error, one event a line.
type Log struct {
	Level  string `yaml:"level"`  // trace, debug, info, warn or error
	Format string `yaml:"format"` // json or text
}

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// Read reads and checks the file at path. Every error is a problem.BadConfig
// that says what, where and what to do.
func Read(path string) (*Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "the configuration file %s can't be read", path).
			WithHint("name it with --config; an example is in docs/operations.md")
	}
	c := &Config{
		Salt: Salt{Config: "/etc/salt/master", User: "oduflow"},
		Log:  Log{Level: "info", Format: "json"},
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, problem.Wrap(problem.BadConfig, err, "%s isn't valid: %s", path, firstLine(err)).
			WithHint("unknown keys are refused; the known ones are listed in docs/operations.md")
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// firstLine keeps yaml.v3's first complaint: it names a line and a key of a
// file that holds no secrets.
func firstLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) > 1 {
		return strings.TrimSpace(lines[1])
	}
	return strings.TrimPrefix(lines[0], "yaml: ")
}

func (c *Config) validate() error {
	required := []struct{ key, value string }{
		{"listen.unix", c.Listen.Unix}, {"database", c.Database},
		{"keys.signing", c.Keys.Signing}, {"keys.secret", c.Keys.Secret}, {"salt.config", c.Salt.Config},
	}
	if c.Listen.TLS != nil {
		required = append(required, struct{ key, value string }{"listen.tls.certificate", c.Listen.TLS.Certificate},
			struct{ key, value string }{"listen.tls.key", c.Listen.TLS.Key})
		if _, _, err := net.SplitHostPort(c.Listen.TLS.Address); err != nil {
			return bad("listen.tls.address", "must be host:port")
		}
	}
	for _, r := range required {
		if !filepath.IsAbs(r.value) {
			return bad(r.key, "must be an absolute path")
		}
	}
	if len(c.Listen.Unix) > 107 {
		return bad("listen.unix", "is longer than a Unix socket's path may be (107 bytes)")
	}
	switch {
	case !userName.MatchString(c.Salt.User):
		return bad("salt.user", "must be a system user's name")
	case c.Salt.User == "root":
		return bad("salt.user", "must not be root: masterd never uses the root key")
	case !slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, c.Log.Level):
		return bad("log.level", "must be trace, debug, info, warn or error")
	case c.Log.Format != "json" && c.Log.Format != "text":
		return bad("log.format", "must be json or text")
	}
	return nil
}

func bad(key, what string) error {
	return problem.New(problem.BadConfig, "configuration key %s %s", key, what)
}
