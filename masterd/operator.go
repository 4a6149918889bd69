package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const adoptUsage = `adopt TARGET --instance UUID --reason TEXT [--replaces OLD] [--config FILE] [--json]

Records that TARGET (a minion ID, taken literally) is the server INSTANCE and
was configured before masterd came. The minion writes its identity file and
answers; masterd pins its key, its ledger and its machine. Custom states are
taken for adopted servers only. It may be repeated, and is the only way past
key_changed and ledger_changed. Only uid 0 may do it.

An instance is one server: a UUID that is recorded for another target is refused
(instance_taken). A cloned or new server takes a UUID of its own. Where the
minion was renamed, --replaces names its old ID; that one's key must be deleted
(salt-key -d OLD), and nothing may be open under it.

Examples:
  masterd adopt web-1 --instance 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10 --reason "configured by hand in May"
  masterd adopt shop-1 --replaces web-1 --instance 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10 --reason "renamed"
`

func adoptTarget(ctx context.Context, c console, args []string) int {
	f := flags(c, "adopt", adoptUsage)
	path := configFlag(f)
	instance := f.String("instance", "", "the server's `UUID`")
	reason := f.String("reason", "", "why, for the record (`text`)")
	replaces := f.String("replaces", "", "the `minion`'s old ID, where it was renamed")
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) != 1 || *instance == "" || *reason == "" {
		return usageError(c, "adopt takes one TARGET, --instance and --reason; see masterd adopt --help")
	}
	client, err := connect(*path)
	if err != nil {
		return fail(c, err)
	}
	answer, err := client.Replace(ctx, rest[0], *replaces, *instance, *reason)
	if err != nil {
		return fail(c, err)
	}
	if *asJSON {
		return printJSON(c, answer)
	}
	fmt.Fprintf(c.out, "%s is adopted as instance %s\n  key     %s\n  ledger  %s\n", answer.Target, answer.Instance, answer.Fingerprint, answer.Ledger)
	return problem.ExitOK
}

const accessUsage = `token create --scope custom|status|validate --name TEXT [--config FILE] [--json]
       masterd token list [--config FILE] [--json]
       masterd token revoke ID [--config FILE]

Bearer tokens for HTTPS. A token is shown once, at its creation; masterd keeps
its hash. Whoever has one of scope custom can run anything on every adopted
server. Only uid 0 may make, list or revoke them.

Examples:
  masterd token create --scope custom --name odoo-production
  masterd token list
  masterd token revoke 3f9a1c22d0
`

func tokens(ctx context.Context, c console, args []string) int {
	f := flags(c, "token", accessUsage)
	path := configFlag(f)
	scope := f.String("scope", "", "what it may do, a `scope`: custom, status or validate")
	name := f.String("name", "", "whose it is (`text`)")
	asJSON := f.Bool("json", false, "print JSON")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	client, err := connect(*path)
	if err != nil {
		return fail(c, err)
	}
	switch {
	case len(rest) == 1 && rest[0] == "create":
		s, err := token.ParseScope(*scope)
		if err != nil {
			return fail(c, err)
		}
		return createToken(ctx, c, client, s, *name, *asJSON)
	case len(rest) == 1 && rest[0] == "list":
		return listTokens(ctx, c, client, *asJSON)
	case len(rest) == 2 && rest[0] == "revoke":
		t, err := client.TokenRevoke(ctx, rest[1])
		if err != nil {
			return fail(c, err)
		}
		fmt.Fprintf(c.out, "token %s (%s) is revoked\n", t.ID, t.Name)
		return problem.ExitOK
	}
	return usageError(c, "token takes create, list or revoke ID; see masterd token --help")
}

func createToken(ctx context.Context, c console, client *httpapi.Client, scope token.Scope, name string, asJSON bool) int {
	text, t, err := client.TokenCreate(ctx, scope, name)
	if err != nil {
		return fail(c, err)
	}
	if asJSON {
		return printJSON(c, map[string]string{"token": text, "id": t.ID, "scope": string(t.Scope), "name": t.Name})
	}
	fmt.Fprintln(c.out, text)
	return problem.ExitOK
}

func listTokens(ctx context.Context, c console, client *httpapi.Client, asJSON bool) int {
	list, err := client.TokenList(ctx)
	if err != nil {
		return fail(c, err)
	}
	if asJSON {
		return printJSON(c, list)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSCOPE\tNAME\tCREATED\tREVOKED")
	for _, t := range list {
		revoked := "-"
		if !t.RevokedAt.IsZero() {
			revoked = t.RevokedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.ID, t.Scope, t.Name, t.CreatedAt.Format(time.RFC3339), revoked)
	}
	_ = w.Flush()
	return problem.ExitOK
}

func connect(path string) (*httpapi.Client, error) {
	cfg, err := config.Read(path)
	if err != nil {
		return nil, err
	}
	return httpapi.NewClient(cfg.Listen.Unix), nil
}

func printJSON(c console, value any) int {
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return fail(c, err)
	}
	return problem.ExitOK
}

// The daemon's side of the operator entry points.

// Adopt is part of httpapi.Operator.
func (d *daemon) Adopt(ctx context.Context, r httpapi.AdoptRequest) (httpapi.AdoptAnswer, error) {
	t, err := d.adopt.Replace(ctx, r.Target, r.Replaces, r.Instance, r.Reason, r.By)
	if err != nil {
		return httpapi.AdoptAnswer{}, err
	}
	d.log.Info("target adopted", "target", t.ID, "instance", t.Instance, "replaces", r.Replaces, "by", t.AdoptedBy)
	return httpapi.AdoptAnswer{
		Target: t.ID, Instance: t.Instance, Fingerprint: t.Fingerprint,
		Ledger: t.Ledger, Machine: t.Machine, AdoptedAt: t.AdoptedAt,
	}, nil
}

// TokenCreate is part of httpapi.Operator.
func (d *daemon) TokenCreate(ctx context.Context, r httpapi.TokenRequest) (string, token.Token, error) {
	text, t, hash, err := token.New(rand.Reader, r.Scope)
	if err != nil {
		return "", token.Token{}, err
	}
	t.Name, t.CreatedAt, t.CreatedBy = r.Name, time.Now(), r.By
	if err := (tokenStore{d.db}).create(ctx, t, hash); err != nil {
		return "", token.Token{}, err
	}
	d.log.Info("token created", "token", t.ID, "scope", t.Scope, "by", r.By)
	return text, t, nil
}

// TokenList is part of httpapi.Operator.
func (d *daemon) TokenList(ctx context.Context) ([]token.Token, error) {
	return tokenStore{d.db}.list(ctx)
}

// TokenRevoke is part of httpapi.Operator.
func (d *daemon) TokenRevoke(ctx context.Context, id, by string) (token.Token, error) {
	t, err := tokenStore{d.db}.revoke(ctx, id, by)
	if err == nil {
		d.log.Info("token revoked", "token", id, "by", by)
	}
	return t, err
}
