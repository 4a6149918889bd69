// Command lab starts and ends a real Salt with masterd on loopback, for the demo and for trying
// things by hand. Tests use the package instead.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/oduflow/oduflow-salt/test/lab"
)

const help = `lab starts a real Salt master, minions, salt-api and masterd on loopback.

Usage:
  lab up [--salt LINE] [--minions N] [--dir DIR] [--repo DIR] [--bin DIR]
         [--no-masterd] [--no-api] [--json]
  lab status [--json]
  lab exec --dir DIR PROGRAM [ARGUMENT...]
  lab venv --salt LINE
  lab down --dir DIR | --all

up leaves the lab running and says where it is. Everything of it lies in one folder (--dir, or a
new one below /var/tmp), described in its lab.json. Run by root the lab lives as in Salt's packages,
with users salt and oduflow; run by anybody else, everything runs as the caller.
The first start of a Salt line builds a venv for it, which is kept ($ODUFLOW_SALT_VENVS, or
/var/tmp/oduflow-salt-venvs-UID). test/lab/install.sh installs what a bare Debian lacks.

exec runs a program of the lab: salt, salt-run, salt-key, salt-cp, python, salt-call (on minion-1,
or on the minion that --minion names), masterd.

venv makes the venv of a Salt line where it is missing, and prints its folder.

down ends every process of the lab, removes the users made for it and its folder, which
ODUFLOW_LAB_KEEP=1 keeps.

Examples:
  lab up --salt 3008 --minions 2
  lab exec --dir /var/tmp/oduflow-lab-1 salt 'minion-*' test.ping
  lab exec --dir /var/tmp/oduflow-lab-1 masterd token list
  lab down --all

Exit status:
  0  done        1  it failed, and the reason is on standard error
  2  wrong usage        exec: the program's own status
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errUsage is a wrong command line; the text was printed.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		_, _ = io.WriteString(stderr, help)
		return 2
	}
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) (int, error){
		"up": up, "down": down, "status": status, "exec": execute, "venv": venv,
	}
	command, known := commands[args[0]]
	if !known {
		if args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
			_, _ = io.WriteString(stdout, help)
			return 0
		}
		_, _ = fmt.Fprintf(stderr, "lab: no command %q; see lab --help\n", args[0])
		return 2
	}
	code, err := command(ctx, args[1:], stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, help)
		return 0
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "lab:", err)
		return 1
	}
	return code
}

func parse(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = fmt.Fprintf(stderr, "see lab --help\n") }
	for _, a := range args {
		if a == "--help" || a == "-h" {
			return flag.ErrHelp
		}
		if !strings.HasPrefix(a, "-") {
			break
		}
	}
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	return nil
}

func noMore(flags *flag.FlagSet, stderr io.Writer) error {
	if flags.NArg() > 0 {
		_, _ = fmt.Fprintf(stderr, "lab: %q is too much; see lab --help\n", flags.Arg(0))
		return errUsage
	}
	return nil
}

func up(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o := lab.Options{Log: stderr}
	flags := flag.NewFlagSet("lab up", flag.ContinueOnError)
	flags.StringVar(&o.Salt, "salt", "3008", "")
	flags.IntVar(&o.Minions, "minions", 1, "")
	flags.StringVar(&o.Dir, "dir", "", "")
	flags.StringVar(&o.Repo, "repo", "", "")
	flags.StringVar(&o.Bin, "bin", "", "")
	flags.BoolVar(&o.NoMasterd, "no-masterd", false, "")
	flags.BoolVar(&o.NoAPI, "no-api", false, "")
	asJSON := flags.Bool("json", false, "")
	if err := parse(flags, args, stderr); err != nil {
		return 0, err
	}
	if err := noMore(flags, stderr); err != nil {
		return 0, err
	}
	l, err := lab.Up(ctx, o)
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil { // interrupted just now: nothing stays
		return 0, errors.Join(ctx.Err(), l.Down())
	}
	l.Detach()
	if *asJSON {
		return 0, writeJSON(stdout, l.Description)
	}
	_, _ = fmt.Fprintf(stdout, "dir      %s\nsalt     %s\nminions  %s\nconfig   %s\n",
		l.Dir, l.Version, strings.Join(l.Minions, " "), l.MasterConfigPath())
	if !l.NoAPI {
		_, _ = fmt.Fprintf(stdout, "api      %s\n", l.APIURL())
	}
	if !l.NoMasterd {
		_, _ = fmt.Fprintf(stdout, "masterd  %s (certificate %s)\nsocket   %s\n", l.MasterdURL(), l.MasterdCert(), l.MasterdSocket())
	}
	_, _ = fmt.Fprintf(stdout, "logs     %s\nend it   lab down --dir %s\n", l.LogDir(), l.Dir)
	return 0, nil
}

func down(_ context.Context, args []string, _, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("lab down", flag.ContinueOnError)
	dir := flags.String("dir", "", "")
	all := flags.Bool("all", false, "")
	if err := parse(flags, args, stderr); err != nil {
		return 0, err
	}
	if err := noMore(flags, stderr); err != nil {
		return 0, err
	}
	if (*dir == "") == !*all {
		_, _ = fmt.Fprintln(stderr, "lab: down takes --dir DIR or --all; see lab --help")
		return 0, errUsage
	}
	if !*all {
		return 0, lab.DownAt(*dir)
	}
	var problems []error
	for _, d := range lab.Running() {
		problems = append(problems, lab.DownAt(d))
	}
	return 0, errors.Join(problems...)
}

type labStatus struct {
	lab.Description
	Processes int `json:"processes"`
}

func status(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("lab status", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "")
	if err := parse(flags, args, stderr); err != nil {
		return 0, err
	}
	if err := noMore(flags, stderr); err != nil {
		return 0, err
	}
	found := []labStatus{}
	for _, dir := range lab.Running() {
		l, err := lab.Attach(dir, nil)
		if err != nil {
			found = append(found, labStatus{Description: lab.Description{Dir: dir}})
			continue
		}
		found = append(found, labStatus{Description: l.Description, Processes: len(l.Processes(""))})
	}
	if *asJSON {
		return 0, writeJSON(stdout, found)
	}
	table := tabwriter.NewWriter(stdout, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "DIR\tSALT\tMINIONS\tPROCESSES\tREADY")
	for _, s := range found {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%t\n", s.Dir, s.Version, len(s.Minions), s.Processes, s.Ready)
	}
	return 0, table.Flush()
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("lab exec", flag.ContinueOnError)
	dir := flags.String("dir", "", "")
	minion := flags.Int("minion", 1, "")
	if err := parse(flags, args, stderr); err != nil {
		return 0, err
	}
	if *dir == "" || flags.NArg() == 0 {
		_, _ = fmt.Fprintln(stderr, "lab: exec takes --dir DIR PROGRAM [ARGUMENT...]; see lab --help")
		return 0, errUsage
	}
	l, err := lab.Attach(*dir, stderr)
	if err != nil {
		return 0, err
	}
	name, rest := flags.Arg(0), flags.Args()[1:]
	var result lab.Result
	switch name {
	case "salt", "salt-run", "salt-key", "salt-cp":
		result, err = l.Run(ctx, l.Caller, name, append([]string{"-c", l.MasterConfigDir()}, rest...)...)
	case "salt-call":
		if *minion < 1 || *minion > len(l.Minions) {
			return 0, fmt.Errorf("no minion-%d in this lab", *minion)
		}
		result, err = l.SaltCall(ctx, *minion, rest...)
	case "masterd":
		result, err = l.MasterdCommand(ctx, append(rest, "--config", l.MasterdConfigPath())...)
	default:
		result, err = l.Run(ctx, l.Caller, name, rest...)
	}
	_, _ = io.WriteString(stdout, result.Stdout)
	_, _ = io.WriteString(stderr, result.Stderr)
	return result.Code, err
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func venv(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("lab venv", flag.ContinueOnError)
	line := flags.String("salt", "3008", "")
	if err := parse(flags, args, stderr); err != nil {
		return 0, err
	}
	if err := noMore(flags, stderr); err != nil {
		return 0, err
	}
	dir, err := lab.Venv(ctx, *line, stderr)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintln(stdout, dir)
	return 0, err
}
