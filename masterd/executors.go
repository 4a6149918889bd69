package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/version"
)

const executorsUsage = `executors keygen --out FILE
       masterd executors sign --key FILE --dir LIBDIR

keygen makes the key that reviewed executors are signed with: FILE, mode 0600,
and FILE.pub, which each minion pins as executors.pub. Keep FILE away from the
master; it isn't masterd's key. sign writes LIBDIR/manifest.json and
LIBDIR/manifest.sig over the plugins in LIBDIR.

Examples:
  masterd executors keygen --out executors.key
  masterd executors sign --key executors.key --dir /usr/lib/oduflow-minion
`

// executorFiles are the reviewed files of a minion's lib_dir.
var executorFiles = []string{"minion-executor", "plugins/custom"}

func executors(_ context.Context, c console, args []string) int {
	f := flags(c, "executors", executorsUsage)
	out := f.String("out", "", "where the private key goes (`file`)")
	key := f.String("key", "", "the private key (`file`)")
	dir := f.String("dir", "", "the `folder` with the executors")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	switch {
	case len(rest) == 1 && rest[0] == "keygen" && *out != "":
		if err := keygen(*out); err != nil {
			return fail(c, err)
		}
		fmt.Fprintf(c.out, "wrote %s and %s.pub\n", *out, *out)
		return problem.ExitOK
	case len(rest) == 1 && rest[0] == "sign" && *key != "" && *dir != "":
		private, err := keyfile.ReadPrivate(*key)
		if err != nil {
			return fail(c, err)
		}
		if err := manifest.Write(*dir, version.Version, private, executorFiles...); err != nil {
			return fail(c, err)
		}
		fmt.Fprintf(c.out, "signed %d executors in %s\n", len(executorFiles), *dir)
		return problem.ExitOK
	}
	return usageError(c, "executors takes keygen --out FILE, or sign --key FILE --dir LIBDIR; see masterd executors --help")
}

func keygen(path string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if err := keyfile.WritePrivate(path, private); err != nil {
		return err
	}
	return keyfile.WritePublic(path+".pub", public)
}
