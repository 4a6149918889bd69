package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	folderMode = 0o750 // who may pass the folder may call; so the socket itself is open to its group
	socketMode = 0o660
)

// ServeUnix serves a Unix socket until ctx ends.
func (s *Server) ServeUnix(ctx context.Context, path string) error {
	l, err := s.ListenUnix(ctx, path)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// ServeTLS serves TLS until ctx ends.
func (s *Server) ServeTLS(ctx context.Context, address, certificate, key string) error {
	l, err := s.ListenTLS(ctx, address, certificate, key)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// ListenUnix makes the socket, so that a caller may connect as soon as it
// returns. Its errors are bad_config: a folder that lets others in, a path
// that isn't a socket, a socket that somebody listens on.
func (s *Server) ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, problem.New(problem.BadConfig, "the socket's path %q isn't absolute", path)
	}
	if err := prepareFolder(filepath.Dir(path), s.cfg.OwnUID); err != nil {
		return nil, err
	}
	if err := clearStale(ctx, path); err != nil {
		return nil, err
	}
	// The folder is closed to others before the socket exists: between listen
	// and chmod nobody gets in who shouldn't.
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "can't listen on %s", path)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(problem.Wrap(problem.BadConfig, err, "can't set the mode of %s", path), l.Close())
	}
	return &limitedListener{Listener: l, places: s.places(), done: make(chan struct{})}, nil
}

// prepareFolder makes the socket's folder, or checks the one that is there.
func prepareFolder(dir string, own uint32) error {
	err := os.Mkdir(dir, folderMode)
	switch {
	case err == nil:
		// Mkdir's mode went through the umask; this one is what was asked for.
		if err := os.Chmod(dir, folderMode); err != nil {
			return problem.Wrap(problem.BadConfig, err, "can't set the mode of %s", dir)
		}
	case !errors.Is(err, fs.ErrExist):
		return problem.Wrap(problem.BadConfig, err, "can't make the socket's folder %s", dir)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return problem.Wrap(problem.BadConfig, err, "can't look at the socket's folder %s", dir)
	}
	if !info.IsDir() {
		return problem.New(problem.BadConfig, "the socket's folder %s isn't a folder", dir)
	}
	if lax := info.Mode().Perm() &^ folderMode; lax != 0 {
		return problem.New(problem.BadConfig, "the socket's folder %s has mode %04o, which lets others in", dir, info.Mode().Perm()).
			WithHint("chmod 0750 %s", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && stat.Uid != own {
		return problem.New(problem.BadConfig, "the socket's folder %s belongs to uid %d, neither root nor masterd's own user", dir, stat.Uid).
			WithHint("chown it to masterd's user")
	}
	return nil
}

// clearStale removes a socket that nobody listens on any more.
func clearStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return problem.Wrap(problem.BadConfig, err, "can't look at %s", path)
	case info.Mode().Type() != fs.ModeSocket:
		return problem.New(problem.BadConfig, "%s exists and isn't a socket", path).
			WithHint("it was left alone; move it away or configure another path")
	}
	dialing, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(dialing, "unix", path)
	if err == nil {
		_ = conn.Close()
		return problem.New(problem.BadConfig, "somebody already listens on %s", path).
			WithHint("is another masterd running?")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return problem.Wrap(problem.BadConfig, err, "can't tell whether somebody listens on %s", path)
	}
	if err := os.Remove(path); err != nil {
		return problem.Wrap(problem.BadConfig, err, "can't remove the stale socket %s", path)
	}
	return nil
}

// ListenTLS listens with TLS 1.2 or later. A certificate that is renewed on
// disk is taken up without a restart.
func (s *Server) ListenTLS(ctx context.Context, address, certificate, key string) (net.Listener, error) {
	pair := &keyPair{certificate: certificate, key: key, log: s.cfg.Logger}
	if err := pair.load(); err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "can't use the certificate %s with the key %s", certificate, key)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "can't listen on %s", address)
	}
	limited := &limitedListener{Listener: l, places: s.places(), done: make(chan struct{}), shares: s.newShares()}
	return tls.NewListener(limited, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: pair.get,
	}), nil
}

// keyPair is a certificate with its key, as the files have it.
type keyPair struct {
	certificate, key string
	log              hclog.Logger

	mu      sync.Mutex
	pair    *tls.Certificate
	changed [2]time.Time
}

func (k *keyPair) load() error {
	changed, err := k.times()
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(k.certificate, k.key)
	if err != nil {
		return err
	}
	k.pair, k.changed = &pair, changed
	return nil
}

func (k *keyPair) times() (t [2]time.Time, err error) {
	for i, path := range []string{k.certificate, k.key} {
		info, err := os.Stat(path)
		if err != nil {
			return t, err
		}
		t[i] = info.ModTime()
	}
	return t, nil
}

// get gives the pair for one handshake. While a renewal is half done the old
// pair stays.
func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if changed, err := k.times(); err != nil || changed != k.changed {
		if err := k.load(); err != nil {
			k.log.Warn("the TLS certificate can't be read again; the old one stays", "error", err)
		} else {
			k.log.Info("the TLS certificate was read again")
		}
	}
	return k.pair, nil
}

// Serve answers on l until ctx ends, then gives calls under way a while to
// finish. A clean end is nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ConnContext:       connContext,
		ReadHeaderTimeout: s.cfg.Limits.ReadHeader,
		ReadTimeout:       s.cfg.Limits.Read,
		WriteTimeout:      s.cfg.Limits.Write,
		IdleTimeout:       s.cfg.Limits.Idle,
		MaxHeaderBytes:    s.cfg.Limits.HeaderBytes,
		ErrorLog:          s.cfg.Logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return problem.Wrap(problem.Internal, err, "stopped to listen on %s", l.Addr())
	case <-ctx.Done():
	}
	s.closeOnce.Do(func() { close(s.closing) }) // waiting calls answer now
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Limits.Close)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil {
		s.cfg.Logger.Warn("calls were still under way at the end", "listener", l.Addr().String())
		_ = srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return problem.Wrap(problem.Internal, err, "stopped to listen on %s", l.Addr())
	}
	return nil
}
