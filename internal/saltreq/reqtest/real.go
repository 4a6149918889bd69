//go:build salt

package reqtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// VenvEnv names the folder of a Python environment with Salt in it.
const VenvEnv = "ODUFLOW_SALT_VENV"

// Real is a real Salt master in a folder of its own.
type Real struct {
	Dir, MasterUser, Login string
	LoginUID, LoginGID     int
	MasterGID              int
	RetPort, BusPort       int
	Python                 string
}

// RealOptions say how the master lives.
type RealOptions struct {
	// MasterUser is the option `user`; "" makes a user for the test. Without
	// root it is always the caller, and so is who owns the login's key.
	MasterUser string
	Accepted   map[string]string // minion ID to PEM
	Pending    map[string]string
	ACL        []string
	Extra      string // further lines of the configuration
}

// StartReal starts a master and takes it down again with the test, with the
// users that it made. It skips the test without VenvEnv.
func StartReal(t *testing.T, o RealOptions) *Real {
	t.Helper()
	venv := os.Getenv(VenvEnv)
	if venv == "" {
		t.Skip("needs " + VenvEnv)
	}
	dir, err := os.MkdirTemp("/var/tmp", "oduflow-req-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &Real{Dir: dir, MasterUser: o.MasterUser, Python: filepath.Join(venv, "bin", "python"), RetPort: freePort(t), BusPort: freePort(t)}
	r.users(t)
	r.files(t, o)

	log, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(venv, "bin", "salt-master"), "-c", filepath.Join(dir, "conf"), "-l", "info") //nolint:forbidigo // ends with its whole group, below
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		waitGone(t, cmd.Process.Pid)
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("salt-master:\n%s", text[max(0, len(text)-4000):])
		}
	})
	r.wait(t)
	return r
}

// waitGone waits until no process of the group is left, so that its user can
// be removed.
func waitGone(t *testing.T, group int) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(-group, 0) == nil {
		select {
		case <-deadline.C:
			t.Errorf("processes of group %d are left", group)
			return
		case <-tick.C:
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}

func (r *Real) users(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		r.MasterUser, r.Login = me.Username, Login
		r.LoginUID, r.LoginGID, r.MasterGID = os.Geteuid(), os.Getegid(), os.Getegid()
		return
	}
	add := func(name string) (uid, gid int) {
		out, err := exec.CommandContext(t.Context(), "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", name).CombinedOutput()
		if err != nil {
			t.Fatalf("useradd %s: %v: %s", name, err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("userdel", name).CombinedOutput(); err != nil { //nolint:forbidigo // the test's context has ended
				t.Errorf("userdel %s: %v: %s", name, err, out)
			}
		})
		return ids(t, name)
	}
	r.Login = fmt.Sprintf("odureql%d", os.Getpid())
	r.LoginUID, r.LoginGID = add(r.Login)
	if r.MasterUser == "" {
		r.MasterUser = fmt.Sprintf("odureqm%d", os.Getpid())
		add(r.MasterUser)
	}
	_, r.MasterGID = ids(t, r.MasterUser)
}

func ids(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}

func (r *Real) files(t *testing.T, o RealOptions) {
	t.Helper()
	write := func(path, text string) {
		path = filepath.Join(r.Dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write("conf/master", strings.NewReplacer("DIR", r.Dir).Replace(fmt.Sprintf(`
user: %s
interface: 127.0.0.1
ret_port: %d
publish_port: %d
tcp_master_pub_port: %d
tcp_master_pull_port: %d
tcp_master_publish_pull: %d
tcp_master_workers: %d
root_dir: DIR
pki_dir: DIR/pki
cachedir: DIR/cache
sock_dir: DIR/run
pidfile: DIR/run/master.pid
log_file: DIR/log/master
key_logfile: DIR/log/key
file_roots: {base: [DIR/srv]}
worker_threads: 3
client_acl_verify: %t
publisher_acl: {%s: ['%s']}
%s
`, r.MasterUser, r.RetPort, freePort(t), r.BusPort, freePort(t), freePort(t), freePort(t), os.Geteuid() == 0, r.Login, strings.Join(o.ACL, "', '"), o.Extra)))
	for id, pem := range o.Accepted {
		write("pki/minions/"+id, pem)
	}
	for id, pem := range o.Pending {
		write("pki/minions_pre/"+id, pem)
	}
	for _, d := range []string{"cache", "run", "log", "srv"} {
		write(d+"/.keep", "")
	}
	if err := os.Chmod(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	uid, gid := ids(t, r.MasterUser)
	err := filepath.Walk(r.Dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// KeyPath is the login key's file.
func (r *Real) KeyPath() string { return filepath.Join(r.Dir, "cache", "."+r.Login+"_key") }

// wait waits until the key is given away and the port is there.
func (r *Real) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var st syscall.Stat_t
		if syscall.Stat(r.KeyPath(), &st) == nil && int(st.Uid) == r.LoginUID {
			var d net.Dialer
			if conn, err := d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", r.RetPort)); err == nil {
				_ = conn.Close()
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatal("the master didn't come up")
		case <-tick.C:
		}
	}
}

// FilesWith gives the files below the master's folder that hold text, but for
// the login key's own.
func (r *Real) FilesWith(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	err := filepath.Walk(r.Dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() || path == r.KeyPath() {
			return nil //nolint:nilerr // a file that went away
		}
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), text) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
