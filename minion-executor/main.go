// minion-executor runs on a minion, once for each message. Salt's execution
// module `oduflow` spawns it and talks with it over its stdin and stdout; see
// internal/minion.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/internal/pluginhost"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/version"
)

const usage = `minion-executor keeps a minion's ledger and runs prepared requests.

Usage:
  minion-executor prepare | start | evidence | settle | update
        Hold one conversation on stdin and stdout. Only Salt's execution module
        "oduflow" speaks it; nothing can be started by hand.
  minion-executor ledger show [--state-dir DIR] [--json]
        Show identity, records and counters. Needs the minion's user.
  minion-executor version
        Print version and protocol.

The default of --state-dir is ` + defaultStateDir + `.

Exit status:
  0  done; a refused message is done too, its answer says so
  1  the conversation broke, or the ledger can't be read
  2  the command line can't be understood
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin, stdout, stderr *os.File) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return problem.ExitUsage
	}
	switch args[0] {
	case "prepare", "start", "evidence", "settle", "update":
		if len(args) != 1 {
			break
		}
		return converse(message.Kind(args[0]), stdin, stdout, stderr)
	case "ledger":
		if len(args) < 2 || args[1] != "show" {
			break
		}
		return showLedger(args[2:], stdout, stderr)
	case "version", "--version":
		fmt.Fprintf(stdout, "minion-executor %s, protocol %d to %d\n", version.Version, message.MinProtocol, message.Protocol)
		return problem.ExitOK
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
		return problem.ExitOK
	}
	fmt.Fprint(stderr, usage)
	return problem.ExitUsage
}

func converse(kind message.Kind, stdin io.Reader, stdout io.Writer, stderr io.Writer) int {
	// What we start inherits neither our stdin nor our stdout: a plugin gets
	// os.Stdin, and a stray print would break the conversation.
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		os.Stdin, os.Stdout = null, null
	}
	syscall.Umask(0o077)
	if kind == message.Start {
		// The life of a start is that of the Salt process: whoever stops the
		// minion stops that, and we read the end of our stdin. A signal to the
		// whole group mustn't end us between the effect and its record.
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE)
	log := hclog.New(&hclog.LoggerOptions{Name: "minion-executor", Output: stderr, Level: hclog.Info, JSONFormat: true})
	defer pluginhost.CleanUp()
	err := minion.Default(rand.Reader, log).Serve(context.Background(), kind, minion.NewTalk(stdin, stdout))
	if err != nil {
		return problem.ExitFailed
	}
	return problem.ExitOK
}
