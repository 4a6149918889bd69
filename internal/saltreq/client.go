package saltreq

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const defaultDeadline = 10 * time.Second

// Config is what a Client needs. New checks all of it.
type Config struct {
	// Address of the request channel, "tcp://127.0.0.1:4506". The host is an
	// address literal of this machine.
	Address string
	// MasterUser is the system user that the master runs as (its option
	// `user`), as a name or a decimal uid. The other end of the connection
	// has to belong to this user or to root.
	MasterUser string
	// User is the publisher_acl user that we log in as. Never root, never the
	// master's own user: their keys pass every check of the master.
	User string
	// CacheDir is the master's cachedir; the key is <CacheDir>/.<User>_key.
	CacheDir string
	// Deadline bounds one request from the dial to the answer. 0 is 10 s.
	Deadline time.Duration
	// Logger gets outcomes; never keys, arguments or answers. nil is none.
	Logger hclog.Logger
	// ProcRoot is where /proc is mounted; tests put a folder of theirs.
	ProcRoot string
}

// Publish is one publication.
type Publish struct {
	Fun Function
	// Target is one minion ID, taken literally.
	Target string
	// Arg is the one opaque argument, "" for PillarRefresh: letters, digits
	// and -_.:+/=~ (base64). What Salt would take for a keyword argument,
	// like «abc=», is refused.
	Arg string
	// JID is chosen and stored by the caller before the publish: 20 digits.
	JID string
}

// Published is what is known after a publish.
type Published struct {
	Outcome Outcome
	Reason  Reason // "" for Sent
}

// Stats are counters since New.
type Stats struct {
	Sent, NotSent, NotAttempted, Unknown uint64 // publishes by outcome
	KeyPrints, KeyPrintFailures          uint64
	ForeignListeners                     uint64 // connections refused since the other end wasn't the master's
	Panics                               uint64 // panics in zmq4 on bytes of the peer, recovered
}

// Client talks to one master. It is safe for use by several goroutines; every
// request has a connection of its own.
type Client struct {
	addr     netip.AddrPort
	allowed  owners
	user     string
	keyPath  string
	keyOwner int
	deadline time.Duration
	log      hclog.Logger
	proc     string
	stats    counters
}

var userShape = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// New checks the configuration. It reads no key and opens no connection.
// Errors have the code problem.BadConfig.
func New(cfg Config) (*Client, error) {
	bad := func(format string, args ...any) (*Client, error) {
		return nil, problem.New(problem.BadConfig, format, args...)
	}
	host, ok := strings.CutPrefix(cfg.Address, "tcp://")
	addr, err := netip.ParseAddrPort(host)
	if !ok || err != nil || addr.Port() == 0 || addr.Addr().IsUnspecified() || addr.Addr().Zone() != "" {
		return bad("the request channel's address %q isn't like tcp://127.0.0.1:4506", cfg.Address)
	}
	if !filepath.IsAbs(cfg.CacheDir) {
		return bad("the master's cachedir %q isn't an absolute path", cfg.CacheDir)
	}
	masterUID, err := uidOf(cfg.MasterUser)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "the master's user %q isn't known on this machine", cfg.MasterUser)
	}
	if err := checkLogin(cfg.User, cfg.MasterUser, masterUID); err != nil {
		return nil, err
	}
	if cfg.Deadline < 0 {
		return bad("the deadline of a request is negative")
	}
	c := &Client{
		addr:     netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()),
		allowed:  owners{0: true, masterUID: true},
		user:     cfg.User,
		keyPath:  filepath.Join(cfg.CacheDir, "."+cfg.User+"_key"),
		keyOwner: os.Geteuid(),
		deadline: cfg.Deadline,
		log:      cfg.Logger,
		proc:     cfg.ProcRoot,
	}
	if c.deadline == 0 {
		c.deadline = defaultDeadline
	}
	if c.log == nil {
		c.log = hclog.NewNullLogger()
	}
	if c.proc == "" {
		c.proc = "/proc"
	}
	return c, nil
}

// checkLogin refuses the two logins that pass every check of the master, by
// name and by uid. `sudo_` is Salt's prefix for «whoever has any key».
func checkLogin(login, masterUser string, masterUID int) error {
	hint := "give masterd a system user of its own and name it in the master's publisher_acl"
	if !userShape.MatchString(login) || strings.HasPrefix(login, "sudo_") {
		return problem.New(problem.BadConfig, "%q can't be masterd's login at the Salt master", login).WithHint("%s", hint)
	}
	if login == "root" || login == masterUser {
		return problem.New(problem.BadConfig, "masterd never logs in as root or as the Salt master's own user").WithHint("%s", hint)
	}
	// A login without a system user is possible with client_acl_verify: False.
	uid, err := uidOf(login)
	if err == nil && (uid == 0 || uid == masterUID) {
		return problem.New(problem.BadConfig, "the login %q is another name of root or of the Salt master's own user", login).WithHint("%s", hint)
	}
	return nil
}

func uidOf(name string) (int, error) {
	if uid, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(uid), nil // #nosec G115 -- 31 bits
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(u.Uid)
}

// Publish sends one publication and says what is known of it afterwards.
//
// Decide by Published.Outcome alone; see the package comment. The error is
// nil for Sent only and tells an operator why: problem.NotSent for
// NotAttempted and NotSent (problem.TargetUnknown where the target matched no
// accepted key), problem.NoAnswer for Unknown. Publish itself never repeats
// anything.
func (c *Client) Publish(ctx context.Context, p Publish) (Published, error) {
	done, err := c.publish(ctx, p)
	c.stats.outcomes[done.Outcome].Add(1)
	if err != nil {
		c.log.Warn("publish", "function", p.Fun.String(), "target", p.Target, "jid", p.JID,
			"outcome", done.Outcome.String(), "reason", string(done.Reason), "error", err)
	} else {
		c.log.Debug("publish", "function", p.Fun.String(), "target", p.Target, "jid", p.JID,
			"outcome", done.Outcome.String())
	}
	return done, err
}

func (c *Client) publish(ctx context.Context, p Publish) (Published, error) {
	if err := p.check(); err != nil {
		return Published{NotAttempted, ReasonRequest}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	answer, fail := c.ask(ctx, func() ([]byte, error) {
		key, err := readKey(c.keyPath, c.keyOwner)
		if err != nil {
			return nil, err
		}
		return encodePublish(p, c.user, key)
	})
	if fail != nil {
		if !fail.attempted {
			return Published{NotAttempted, fail.reason},
				problem.Wrap(problem.NotSent, fail.err, "nothing was sent to the Salt master").WithHint("%s", fail.hint())
		}
		return Published{Unknown, fail.reason},
			problem.Wrap(problem.NoAnswer, fail.err, "the Salt master gave no answer that can be used")
	}
	done := classify(answer, p.JID, p.Target)
	return done, answerProblem(done)
}

// answerProblem says what an answer that isn't Sent means for an operator.
func answerProblem(done Published) error {
	switch {
	case done.Outcome == Sent:
		return nil
	case done.Outcome == Unknown:
		return problem.New(problem.NoAnswer, "the Salt master's answer proves nothing (%s)", done.Reason)
	case done.Reason == ReasonTargetUnmatched:
		return problem.New(problem.TargetUnknown, "the Salt master has no accepted key for this target")
	}
	return problem.New(problem.NotSent, "the Salt master refused masterd's login (%s)", done.Reason).
		WithHint("is masterd's user in the master's publisher_acl with all functions of oduflow? A master that was started again makes new keys")
}

// KeyPrint fetches the accepted key of exactly this minion, as the PEM that
// the master holds. It has no effect and may be repeated.
//
// problem.TargetUnknown: no accepted key. problem.BadField: not one literal
// ID. problem.ExecutorSilent: the master couldn't be asked; the hint says why.
func (c *Client) KeyPrint(ctx context.Context, id string) (string, error) {
	c.stats.keyPrints.Add(1)
	pem, err := c.keyPrint(ctx, id)
	if err != nil && problem.CodeOf(err) != problem.TargetUnknown {
		c.stats.keyFailures.Add(1)
		c.log.Warn("key.print", "target", id, "error", err)
	}
	return pem, err
}

func (c *Client) keyPrint(ctx context.Context, id string) (string, error) {
	if err := checkID(id); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	answer, fail := c.ask(ctx, func() ([]byte, error) {
		key, err := readKey(c.keyPath, c.keyOwner)
		if err != nil {
			return nil, err
		}
		return encodeKeyPrint(id, key)
	})
	if fail != nil {
		return "", silent(fail.err, "the Salt master couldn't be asked for the target's key").WithHint("%s", fail.hint())
	}
	return keyOf(answer, id)
}

// hint says what an operator can do about a request without an answer.
func (f *failure) hint() string {
	switch {
	case errors.Is(f.err, errForeign):
		return "something else than the Salt master listens on its port: find out what it is before anything else"
	case f.reason == ReasonConnect:
		return "is the Salt master running, and is this its interface and ret_port?"
	case f.reason == ReasonListener:
		return "masterd has to run in the network namespace of the Salt master"
	case f.reason == ReasonHandshake:
		return "what listens on the Salt master's port doesn't speak ZeroMQ: is its transport zeromq?"
	case f.reason == ReasonKeyFile:
		return keyProblem(f.err)
	case f.reason == ReasonTimeout, f.reason == ReasonCancelled:
		return "the Salt master is slow or hangs: look at its load and its worker_threads"
	}
	return "see the log of masterd and of the Salt master"
}

// Stats gives the counters.
func (c *Client) Stats() Stats {
	return Stats{
		Sent:             c.stats.outcomes[Sent].Load(),
		NotSent:          c.stats.outcomes[NotSent].Load(),
		NotAttempted:     c.stats.outcomes[NotAttempted].Load(),
		Unknown:          c.stats.outcomes[Unknown].Load(),
		KeyPrints:        c.stats.keyPrints.Load(),
		KeyPrintFailures: c.stats.keyFailures.Load(),
		ForeignListeners: c.stats.foreign.Load(),
		Panics:           c.stats.panics.Load(),
	}
}
