package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/eventbus"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/reconcile"
	"github.com/oduflow/oduflow-salt/internal/saltconfig"
	"github.com/oduflow/oduflow-salt/internal/saltreq"
	"github.com/oduflow/oduflow-salt/internal/start"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/version"
)

const serveUsage = `serve [--config FILE] [--check]

Runs the daemon until SIGTERM. With --check it reads the configuration, Salt's
master configuration and the keys, says whether they can be used, and changes
nothing; a running daemon isn't disturbed.

Examples:
  masterd serve --check
  masterd serve --config /etc/oduflow/masterd.yaml
`

func serve(ctx context.Context, c console, args []string) int {
	f := flags(c, "serve", serveUsage)
	path := configFlag(f)
	check := f.Bool("check", false, "check the configuration only")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) > 0 {
		return usageError(c, "serve takes no arguments, got %q", rest[0])
	}
	parts, err := prepareParts(*path)
	if err != nil {
		return fail(c, err)
	}
	if *check {
		fmt.Fprintf(c.out, "%s can be used: Salt master %s, request channel %s\n", *path, parts.cfg.Salt.Config, parts.master.RequestAddress())
		return problem.ExitOK
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "masterd", Level: hclog.LevelFromString(parts.cfg.Log.Level),
		Output: c.err, JSONFormat: parts.cfg.Log.Format == "json",
	})
	if err := parts.serve(ctx, log); err != nil {
		log.Error("masterd stops", "error", err)
		return fail(c, err)
	}
	return problem.ExitOK
}

// parts are what the configuration names, read and checked, nothing opened.
type parts struct {
	cfg    *config.Config
	master *saltconfig.Master
	keys   keys
	client func(hclog.Logger) (*saltreq.Client, error)
}

func prepareParts(path string) (*parts, error) {
	cfg, err := config.Read(path)
	if err != nil {
		return nil, err
	}
	master, err := saltconfig.Load(cfg.Salt.Config)
	if err != nil {
		return nil, err
	}
	if err := master.CheckLogin(cfg.Salt.User); err != nil {
		return nil, err
	}
	k, err := readKeys(cfg)
	if err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg, master: master, keys: k}
	p.client = func(log hclog.Logger) (*saltreq.Client, error) {
		return saltreq.New(saltreq.Config{
			Address: master.RequestAddress(), MasterUser: master.User, User: cfg.Salt.User,
			CacheDir: master.CacheDir, Logger: log,
		})
	}
	_, err = p.client(nil)
	return p, err
}

// daemon is masterd while it runs.
type daemon struct {
	parts    *parts
	log      hclog.Logger
	db       *store.DB
	bus      *eventbus.Client
	exchange *exchange.Exchange
	dispatch *dispatch.Dispatcher
	service  *start.Service
	adopt    *adopt.Service

	reconcile *reconcile.Service
}

func (p *parts) serve(ctx context.Context, log hclog.Logger) (err error) {
	db, err := store.Open(ctx, store.Config{Path: p.cfg.Database, Now: time.Now, Random: rand.Reader, Logger: log.Named("store")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	client, err := p.client(log.Named("saltreq"))
	if err != nil {
		return err
	}
	d := &daemon{parts: p, log: log, db: db}
	d.wire(client)
	server := httpapi.New(httpapi.Config{
		Service: d, Operator: d, Receipts: d, Tokens: tokenStore{db}, Logger: log.Named("http"), Now: time.Now,
		Lab: p.cfg.Lab, OwnUID: uint32(os.Geteuid()), //nolint:gosec // a uid fits
	})
	listeners, err := d.listen(ctx, server)
	if err != nil {
		return err
	}
	return d.run(ctx, server, listeners)
}

func (d *daemon) wire(client *saltreq.Client) {
	network, address := d.parts.master.Bus()
	seed := mrand.New(mrand.NewPCG(mrand.Uint64(), mrand.Uint64())) //nolint:gosec // spreads load, protects nothing
	d.bus = eventbus.New(eventbus.Config{
		Network: network, Address: address, Now: time.Now, Jitter: mrand.Float64, Logger: d.log.Named("bus"),
	})
	d.exchange = exchange.New(exchange.Config{
		Channel: saltChannel{client}, Signing: d.parts.keys.signing, Secret: d.parts.keys.secret,
		Now: time.Now, Random: rand.Reader, Logger: d.log.Named("exchange"), NextJID: receipt.NextQuestionJID,
	})
	d.dispatch = dispatch.New(dispatch.Config{
		Store: d.db, Exchange: saltExchange{d.exchange}, Now: time.Now, Jitter: seed,
		Logger: d.log.Named("dispatch"), Joined: d.joined, Records: records{d},
		Changed: func(r receipt.Receipt) { d.service.Changed(r) },
	})
	d.reconcile = reconcile.New(reconcile.Config{
		Store: d.db, Exchange: d.exchange, Look: d.dispatch.Look, Moved: d.moved,
		Joined: d.joined, Now: time.Now, Logger: d.log.Named("reconcile"),
	})
	d.service = start.New(start.Config{
		Store: d.db, Now: time.Now, Bound: d.dispatch.Bound, Joined: d.joined, Logger: d.log.Named("start"),
	})
	d.adopt = adopt.New(adopt.Config{
		Store: d.db, Ledgers: d.db, Holders: d.db, Exchange: d.exchange, Now: time.Now, Random: rand.Reader, NewUUID: newUUID, Joined: d.joined,
	})
}

func (d *daemon) joined() bool {
	joined, _ := d.bus.Joined()
	return joined
}

func (d *daemon) listen(ctx context.Context, server *httpapi.Server) ([]net.Listener, error) {
	unix, err := server.ListenUnix(ctx, d.parts.cfg.Listen.Unix)
	if err != nil {
		return nil, err
	}
	listeners := []net.Listener{unix}
	if t := d.parts.cfg.Listen.TLS; t != nil {
		l, err := server.ListenTLS(ctx, t.Address, t.Certificate, t.Key)
		if err != nil {
			return nil, errors.Join(err, unix.Close())
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// run works until ctx ends or a part fails, then stops in the order that leaves
// nothing half done: no new calls, then the lanes, then the bus, then the store.
func (d *daemon) run(ctx context.Context, server *httpapi.Server, listeners []net.Listener) error {
	calls, stopCalls := context.WithCancel(ctx)
	defer stopCalls()
	busCtx, stopBus := context.WithCancel(context.WithoutCancel(ctx))
	var calling, working, hearing sync.WaitGroup
	failed := make(chan error, len(listeners)+2)
	for _, l := range listeners {
		calling.Go(func() { failed <- server.Serve(calls, l) })
	}
	hearing.Go(func() { failed <- d.bus.Run(busCtx) })
	hearing.Go(d.pump)
	working.Go(func() { failed <- d.dispatch.Run(calls) })
	d.sayEpoch(ctx)
	notify("READY=1")
	d.log.Info("masterd is ready", "version", version.Version, "socket", d.parts.cfg.Listen.Unix)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	notify("STOPPING=1")
	d.log.Info("masterd is stopping")
	stopCalls()
	calling.Wait()
	working.Wait()
	stopBus()
	hearing.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// pump hands what the bus carries to whom it may concern. It ends when the
// bus's Run has ended.
func (d *daemon) pump() {
	for signal := range d.bus.Events() {
		switch {
		case signal.Gap != nil:
			d.log.Info("events may have been missed", "since", signal.Gap.Since, "reason", signal.Gap.Reason)
			d.dispatch.Gap()
		case signal.Event != nil:
			if minion, started := eventbus.StartTag(signal.Event.Tag); started {
				d.dispatch.Up(minion)
			} else if ret, err := eventbus.DecodeReturn(*signal.Event); err == nil {
				d.exchange.Deliver(ret.JID, ret.Minion, ret.Text)
			}
		}
	}
}

// notify tells systemd, where it started us, what it waits for.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixgram", path) //nolint:noctx,gosec // a datagram to the local socket that systemd named doesn't block
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte(state))
}

// keys are masterd's own.
type keys struct {
	signing []byte
	secret  []byte
}

func readKeys(cfg *config.Config) (keys, error) {
	signing, err := keyfile.ReadPrivate(cfg.Keys.Signing)
	if err != nil {
		return keys{}, err
	}
	secret, err := keyfile.ReadSecret(cfg.Keys.Secret)
	return keys{signing: signing, secret: secret}, err
}
