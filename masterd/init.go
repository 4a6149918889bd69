package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/store"
)

const initUsage = `init [--config FILE] [--public-key-out FILE]

Makes the receipt database, masterd's signing key and its secret, at the places
that the configuration names, each mode 0600. Keys that exist are kept; beside
an existing database it does nothing and fails. Run it as masterd's own user.
It prints the public key file's content that each minion pins as masterd.pub.

Examples:
  masterd init
  masterd init --public-key-out /srv/oduflow/masterd.pub
`

func initialise(ctx context.Context, c console, args []string) int {
	f := flags(c, "init", initUsage)
	path := configFlag(f)
	publicOut := f.String("public-key-out", "", "also write the public key to this `file`")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) > 0 {
		return usageError(c, "init takes no arguments, got %q", rest[0])
	}
	cfg, err := config.Read(*path)
	if err != nil {
		return fail(c, err)
	}
	public, err := makeAll(ctx, cfg)
	if err != nil {
		return fail(c, err)
	}
	if *publicOut == "" {
		*publicOut = cfg.Keys.Signing + ".pub"
	}
	if err := os.Remove(*publicOut); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(c, problem.Wrap(problem.BadConfig, err, "%s can't be replaced", *publicOut))
	}
	if err := keyfile.WritePublic(*publicOut, public); err != nil {
		return fail(c, err)
	}
	fmt.Fprintf(c.out, "database  %s\nsigning   %s\nsecret    %s\npublic    %s\n", cfg.Database, cfg.Keys.Signing, cfg.Keys.Secret, *publicOut)
	return problem.ExitOK
}

func makeAll(ctx context.Context, cfg *config.Config) (ed25519.PublicKey, error) {
	err := store.Create(ctx, store.Config{Path: cfg.Database, Now: time.Now, Random: rand.Reader, Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.Keys.Secret); errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, keyfile.SecretSize)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		if err := keyfile.WriteSecret(cfg.Keys.Secret, secret); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(cfg.Keys.Signing); errors.Is(err, fs.ErrNotExist) {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		return public, keyfile.WritePrivate(cfg.Keys.Signing, private)
	}
	private, err := keyfile.ReadPrivate(cfg.Keys.Signing)
	if err != nil {
		return nil, err
	}
	return private.Public().(ed25519.PublicKey), nil
}
