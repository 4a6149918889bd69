// Command masterd takes requests to change one server beside a Salt master and
// carries each out at most once. This package only wires: flags, signals, exit
// statuses, and one file for each command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/version"
)

// console is where a command reads and writes.
type console struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// command is one verb of masterd.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, c console, args []string) int
}

func commands() []command {
	return []command{
		{"serve", "run the daemon", serve},
		{"init", "make the database and the keys", initialise},
		{"validate", "check states without a daemon", func(_ context.Context, c console, args []string) int {
			return runValidate(args, c.in, c.out, c.err)
		}},
		{"adopt", "record a server that was configured before", adoptTarget},
		{"receipts", "list requests, and show what is known of one", receipts},
		{"evidence", "ask a target again what became of a request", askEvidence},
		{"reconcile", "record what became of an uncertain request", reconcileReceipt},
		{"backup", "copy the receipt database", backup},
		{"restore", "put a backup in its place, as a new epoch", restore},
		{"token", "create, list and revoke bearer tokens", tokens},
		{"executors", "make keys for, and sign, the minions' executors", executors},
		{"version", "print the version", func(_ context.Context, c console, _ []string) int {
			fmt.Fprintln(c.out, version.Version)
			return problem.ExitOK
		}},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, console{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
}

// run is the whole program without the process: tests start it too.
func run(ctx context.Context, c console, args []string) int {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		help(c.out)
		if len(args) == 0 {
			return problem.ExitUsage
		}
		return problem.ExitOK
	}
	if args[0] == "--version" {
		args[0] = "version"
	}
	for _, cmd := range commands() {
		if cmd.name == args[0] {
			return cmd.run(ctx, c, args[1:])
		}
	}
	fmt.Fprintf(c.err, "masterd: unknown command %q; masterd --help lists them\n", args[0])
	return problem.ExitUsage
}

func help(out io.Writer) {
	fmt.Fprint(out, "masterd takes requests to change one server and carries each out at most once.\n\nCommands:\n")
	for _, cmd := range commands() {
		fmt.Fprintf(out, "  %-10s %s\n", cmd.name, cmd.summary)
	}
	fmt.Fprint(out, `
masterd COMMAND --help says more.

Examples:
  masterd init --config /etc/oduflow/masterd.yaml
  masterd serve --check
  masterd adopt web-1 --instance 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10 --reason "configured by hand in May"

`+exitStatuses)
}

const exitStatuses = `Exit status:
  0  done, nothing has failed
  1  failed
  2  what was asked can't be understood or isn't valid
  3  uncertain
  4  it contradicts what is stored
  5  not found
  6  not allowed
  7  not available now; try again later
Count any other status as a failure.
`

// flags makes a flag set whose --help prints usage, examples and exit statuses.
func flags(c console, name, usage string) *flag.FlagSet {
	f := flag.NewFlagSet("masterd "+name, flag.ContinueOnError)
	f.SetOutput(c.err)
	f.Usage = func() {
		f.SetOutput(c.out)
		fmt.Fprintf(c.out, "Usage: masterd %s\n\nOptions:\n", strings.TrimSpace(usage))
		f.PrintDefaults()
		fmt.Fprint(c.out, "\n"+exitStatuses)
	}
	return f
}

func configFlag(f *flag.FlagSet) *string {
	return f.String("config", config.DefaultPath, "masterd's configuration `file`")
}

// parse lets options stand after arguments too, and says whether to go on.
func parse(f *flag.FlagSet, args []string) (rest []string, exit int, ok bool) {
	for {
		switch err := f.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, problem.ExitOK, false
		case err != nil:
			return nil, problem.ExitUsage, false
		}
		if f.NArg() == 0 {
			return rest, problem.ExitOK, true
		}
		rest = append(rest, f.Arg(0))
		args = f.Args()[1:]
	}
}

// fail prints an error for people and gives its exit status.
func fail(c console, err error) int {
	e := problem.Outer(err)
	fmt.Fprintf(c.err, "masterd: %s (%s)\n", e.Message, e.Code)
	if e.Hint != "" {
		fmt.Fprintf(c.err, "  %s\n", e.Hint)
	}
	var full *problem.Error
	if errors.As(err, &full) && full.Cause != nil {
		fmt.Fprintf(c.err, "  cause: %v\n", full.Cause)
	} else if full == nil {
		fmt.Fprintf(c.err, "  cause: %v\n", err)
	}
	return problem.RowOf(e.Code).Exit
}

func usageError(c console, format string, args ...any) int {
	fmt.Fprintf(c.err, "masterd: "+format+"\n", args...)
	return problem.ExitUsage
}
