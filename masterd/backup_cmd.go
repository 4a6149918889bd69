package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/store"
)

const backupUsage = `backup FILE [--config FILE] [--json]

Copies the receipt database to FILE, which must not exist: one committed state,
mode 0600, checked and synced. masterd may be running. The copy holds sources:
keep it as private as the database. Keys aren't in it.

Examples:
  masterd backup /var/backups/oduflow/receipts-$(date +%F).db
`

func backup(ctx context.Context, c console, args []string) int {
	f := flags(c, "backup", backupUsage)
	path := configFlag(f)
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) != 1 {
		return usageError(c, "backup takes one FILE; see masterd backup --help")
	}
	cfg, err := config.Read(*path)
	if err != nil {
		return fail(c, err)
	}
	to, err := filepath.Abs(rest[0])
	if err != nil {
		return fail(c, problem.Wrap(problem.Usage, err, "%s can't be made absolute", rest[0]))
	}
	if err := store.Backup(ctx, cfg.Database, to); err != nil {
		return fail(c, err)
	}
	const next = "copy it to another machine; masterd restore FILE brings it back"
	if *asJSON {
		return printJSON(c, map[string]string{"database": cfg.Database, "backup": to, "next": next})
	}
	fmt.Fprintf(c.out, "%s is copied to %s\n", cfg.Database, to)
	printNext(c.out, next)
	return problem.ExitOK
}

const restoreUsage = `restore FILE [--config FILE] [--json]

Puts a backup in the place of the receipt database, as a new epoch. It is
refused while masterd runs; run it as masterd's own user. The database that was
there is kept beside it. Nothing runs a second time: what waited in the backup
is never started, what was dispatched is resolved by the minions' ledgers, and
a run that only a ledger knows becomes an uncertain receipt once its target is
used. FILE may be the database itself, where an older copy was put there by
hand.

Examples:
  systemctl stop masterd
  sudo -u oduflow masterd restore /var/backups/oduflow/receipts-2026-11-30.db
  systemctl start masterd
`

func restore(ctx context.Context, c console, args []string) int {
	f := flags(c, "restore", restoreUsage)
	path := configFlag(f)
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) != 1 {
		return usageError(c, "restore takes one FILE; see masterd restore --help")
	}
	cfg, err := config.Read(*path)
	if err != nil {
		return fail(c, err)
	}
	done, err := store.Restore(ctx, store.Config{
		Path: cfg.Database, Now: time.Now, Random: rand.Reader, Logger: hclog.NewNullLogger(),
	}, rest[0])
	if err != nil {
		return fail(c, err)
	}
	const next = "start masterd, then: masterd receipts list --status uncertain"
	if *asJSON {
		return printJSON(c, map[string]any{
			"database": cfg.Database, "epoch": done.Epoch, "replaced": orNull(done.Replaced),
			"waiting": done.Waiting, "open": done.Open, "next": next,
		})
	}
	fmt.Fprintf(c.out, "%s is %s now, in the new epoch %s\n", cfg.Database, rest[0], done.Epoch)
	if done.Replaced != "" {
		fmt.Fprintf(c.out, "  what was there  %s\n", done.Replaced)
	}
	fmt.Fprintf(c.out, "  waiting in it   %d: none of them is started; their ledgers say whether they ran\n", done.Waiting)
	fmt.Fprintf(c.out, "  not ended       %d: resolved by evidence\n", done.Open)
	printNext(c.out, next)
	return problem.ExitOK
}
