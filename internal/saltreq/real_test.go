//go:build salt

package saltreq_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/saltreq"
	"github.com/oduflow/oduflow-salt/internal/saltreq/reqtest"
)

// child is what the login's process has to know.
type child struct {
	Real     *reqtest.Real
	Accepted string
}

const childEnv = "SALTREQ_TEST_REAL"

// The contract on a real master. As root: the master is started as root with
// `user: <somebody>`, as in Salt's packages, and with `user: root`; and the
// suite runs in a process of the login's user.
func TestContractOnARealMaster(t *testing.T) {
	users := map[string]string{"user salt": "", "user root": "root"}
	if os.Geteuid() != 0 {
		users = map[string]string{"all as the caller": ""}
	}
	for name, masterUser := range users {
		t.Run(name, func(t *testing.T) {
			key := newKey(t)
			r := reqtest.StartReal(t, reqtest.RealOptions{
				MasterUser: masterUser,
				Accepted:   map[string]string{"minion-1": key, "minion-10": newKey(t)},
				Pending:    map[string]string{"minion-2": newKey(t)},
				ACL:        []string{"oduflow.*"},
			})
			secret, err := os.ReadFile(r.KeyPath())
			if err != nil {
				t.Fatal(err)
			}
			heard := listenTo(t, r)
			env, err := json.Marshal(child{r, key})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^TestAsLogin$", "-test.v")
			cmd.Env = append(os.Environ(), childEnv+"="+string(env))
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
					Uid: uint32(r.LoginUID), Gid: uint32(r.LoginGID), Groups: []uint32{uint32(r.MasterGID)},
				}}
			}
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
			// «No file of the job cache, no event and no log holds anything
			// with which a second publish could be made.»
			if files := r.FilesWith(t, string(secret)); len(files) != 0 {
				t.Fatalf("the login's key is in %v", files)
			}
			if files := r.FilesWith(t, "ZXhlcmNpc2U"); len(files) == 0 {
				t.Fatal("the search finds nothing at all")
			}
			events := heard()
			if bytes.Contains(events, secret) {
				t.Fatal("the login's key is on the event bus")
			}
			for _, tag := range []string{"/new\n\n", "/error\n\n", "ZXhlcmNpc2U"} {
				if !bytes.Contains(events, []byte(tag)) {
					t.Fatalf("%q isn't on the event bus: %d bytes", tag, len(events))
				}
			}
		})
	}
}

// listenTo keeps all bytes of the master's event bus; what it gives ends that.
func listenTo(t *testing.T, r *reqtest.Real) func() []byte {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "unix", filepath.Join(r.Dir, "run", "master_event_pub.ipc"))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(&all, conn)
	}()
	return func() []byte {
		_ = conn.Close()
		<-ended
		return all.Bytes()
	}
}

func TestAsLogin(t *testing.T) {
	raw := os.Getenv(childEnv)
	if raw == "" {
		t.Skip("part of TestContractOnARealMaster")
	}
	var c child
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		t.Fatal(err)
	}
	r := c.Real
	client, err := saltreq.New(saltreq.Config{
		Address: "tcp://127.0.0.1:" + strconv.Itoa(r.RetPort), MasterUser: r.MasterUser, User: r.Login,
		CacheDir: r.Dir + "/cache", Deadline: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	reqtest.Exercise(t, func(*testing.T) reqtest.Bench {
		return reqtest.Bench{
			Client: client, Accepted: "minion-1", PEM: c.Accepted, Pending: "minion-2", Unknown: "minion",
			Forbidden: saltreq.PillarRefresh, NextJID: nextJID,
			SpoilKey: func(t *testing.T) func() {
				right, err := os.ReadFile(r.KeyPath())
				if err != nil {
					t.Fatal(err)
				}
				put := func(key []byte) {
					if err := os.WriteFile(r.KeyPath(), key, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				put([]byte("d3Jvbmcga2V5"))
				return func() { put(right) }
			},
		}
	})
	if s := client.Stats(); s.Unknown != 0 || s.NotAttempted != 0 {
		t.Fatalf("%+v", s)
	}
}
