package saltconfig_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/saltconfig"
)

// write puts files into a folder and gives the path of "master".
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "master")
}

func load(t *testing.T, files map[string]string) *saltconfig.Master {
	t.Helper()
	m, err := saltconfig.Load(write(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}", "publisher_acl:\nsock_dir:\n"} {
		if text == "publisher_acl:\nsock_dir:\n" {
			// Salt breaks on a sock_dir of None; so do we.
			if _, err := saltconfig.Load(write(t, map[string]string{"master": text})); problem.CodeOf(err) != problem.BadConfig {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		m := load(t, map[string]string{"master": text})
		if m.SockDir != "/var/run/salt/master" || m.CacheDir != "/var/cache/salt/master" || m.PKIDir != "/etc/salt/pki/master" ||
			m.RequestAddress() != "tcp://127.0.0.1:4506" || m.User != "root" || m.UserGiven || !m.ClientACLVerify {
			t.Errorf("%q: %+v", text, m)
		}
		if n, a := m.Bus(); n != "unix" || a != "/var/run/salt/master/master_event_pub.ipc" {
			t.Errorf("%q: %s %s", text, n, a)
		}
	}
}

func TestSettings(t *testing.T) {
	m := load(t, map[string]string{"master": `
user: salt
root_dir: /srv/x
sock_dir: run
cachedir: /srv/x/cache
pki_dir: /pki
interface: '::'
ret_port: 14506
ipc_mode: tcp
ipv6: on
tcp_master_pub_port: 14512
client_acl_verify: No
publisher_acl:
  oduflow: [oduflow.*, {'web*': [test.ping, {a: [x]}]}]
  nobody:
`})
	if m.RootDir != "/srv/x" || m.SockDir != "/srv/x/run" || m.CacheDir != "/srv/x/cache" || m.PKIDir != "/srv/x/pki" {
		t.Errorf("%+v", m)
	}
	if m.RequestAddress() != "tcp://[::1]:14506" || m.User != "salt" || !m.UserGiven || m.ClientACLVerify {
		t.Errorf("%+v", m)
	}
	if n, a := m.Bus(); n != "tcp" || a != "[::1]:14512" {
		t.Errorf("%s %s", n, a)
	}
	if want := map[string][]string{"oduflow": {"oduflow.*", "test.ping", "x"}, "nobody": {}}; !reflect.DeepEqual(m.PublisherACL, want) {
		t.Errorf("%v", m.PublisherACL)
	}
	if m.KeyFile("oduflow") != "/srv/x/cache/.oduflow_key" {
		t.Error(m.KeyFile("oduflow"))
	}
	for user, ok := range map[string]bool{"oduflow": true, "nobody": false, "other": false} {
		if err := m.CheckLogin(user); (err == nil) != ok || err != nil && problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func TestIncludes(t *testing.T) {
	m := load(t, map[string]string{
		"master":              "user: a\nret_port: 1001\ninterface: 127.0.0.3\npublisher_acl: {hidden: [x]}\n",
		"master.d/20.conf":    "ret_port: 1003\npublisher_acl: {oduflow: [b], two: [c]}\n",
		"master.d/10.conf":    "ret_port: 1002\nuser: b\npublisher_acl: {oduflow: [a]}\ninclude: more/*.inc\n",
		"master.d/more/1.inc": "interface: 127.0.0.2\n",
		"master.d/.h.conf":    "ret_port: 1004\n",
		"master.d/x.txt":      "ret_port: 1005\n",
	})
	if m.RetPort != 1003 || m.User != "b" || m.Interface != "127.0.0.2" {
		t.Errorf("%+v", m)
	}
	if want := map[string][]string{"oduflow": {"a", "b"}, "two": {"c"}}; !reflect.DeepEqual(m.PublisherACL, want) {
		t.Errorf("%v", m.PublisherACL)
	}
	m = load(t, map[string]string{
		"master":          "default_include: other.d/*.cnf\nret_port: 1\ninclude: [DIR/last]\n",
		"master.d/1.conf": "ret_port: 2\n",
		"other.d/1.cnf":   "ret_port: 3\nuser: x\n",
		"last":            "user: y\n",
	})
	if m.RetPort != 3 || m.User != "y" {
		t.Errorf("%+v", m)
	}
}

func TestSocketPathThatIsTooLong(t *testing.T) {
	m := load(t, map[string]string{"master": "cachedir: /var/c\nsock_dir: /var/a-long-way-down/run\n"})
	if m.SockDir != "/var/c/.salt-unix" {
		t.Error(m.SockDir)
	}
}

func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"order_masters":     "order_masters: True",
		"order_masters yes": "order_masters: yes",
		"ssh minions":       "enable_ssh_minions: on",
		"transport":         "transport: tcp",
		"ipc_mode":          "ipc_mode: udp",
		"port":              "ret_port: 0",
		"port as octal":     "ret_port: 04506",
		"port as text":      "ret_port: x",
		"port too large":    "ret_port: 70000",
		"a name":            "interface: localhost",
		"a map as user":     "user: {a: b}",
		"bool":              "order_masters: 2",
		"a list":            "- a",
		"text":              "hello",
		"two documents":     "user: a\n---\nuser: b",
		"twice":             "user: a\nuser: b",
		"syntax":            "user: [",
		"acl as a list":     "publisher_acl: [oduflow]",
		"include":           "include: {a: b}",
		"empty user":        "user: ''",
	} {
		if m, err := saltconfig.Load(write(t, map[string]string{"master": text})); problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, files := range map[string]map[string]string{
		"order_masters in an include": {"master": "", "master.d/a.conf": "order_masters: true"},
		"broken include":              {"master": "", "master.d/a.conf": "["},
		"no file":                     {"other": ""},
		"endless":                     {"master": "include: master"},
	} {
		if _, err := saltconfig.Load(write(t, files)); problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := saltconfig.Load("master"); problem.CodeOf(err) != problem.BadConfig {
		t.Error(err)
	}
}

// The same files, read by Salt itself: ODUFLOW_SALT_VENV names a venv.
func TestAgreesWithSalt(t *testing.T) {
	venv := os.Getenv("ODUFLOW_SALT_VENV")
	if venv == "" {
		t.Skip("needs ODUFLOW_SALT_VENV")
	}
	const script = `
import sys, salt.config
o = salt.config.master_config(sys.argv[1])
for k in ("sock_dir", "cachedir", "pki_dir", "interface", "ret_port", "ipc_mode", "tcp_master_pub_port", "user", "client_acl_verify"):
    print(k, o[k])
print("acl", {k: len(v or []) for k, v in sorted(o["publisher_acl"].items())})
`
	for name, files := range map[string]map[string]string{
		"defaults":  {"master": "user: root\n"},
		"root_dir":  {"master": "user: x\nroot_dir: DIR/r\n"},
		"all":       {"master": "user: x\nroot_dir: DIR/r\nsock_dir: run\ncachedir: DIR/r/c\npki_dir: /p\nret_port: 14506\nipc_mode: tcp\ntcp_master_pub_port: 999\nclient_acl_verify: off\npublisher_acl: {a: [b, c]}\n"},
		"includes":  {"master": "user: a\nret_port: 1001\npublisher_acl: {h: [x]}\n", "master.d/20.conf": "ret_port: 1003\npublisher_acl: {o: [b], two: [c]}\n", "master.d/10.conf": "ret_port: 1002\nuser: b\npublisher_acl: {o: [a]}\ninclude: more/*.inc\n", "master.d/more/1.inc": "interface: 127.0.0.2\n"},
		"long path": {"master": "user: x\ncachedir: /var/c\nsock_dir: /var/a-long-way-down/run\n"},
		"prefix":    {"master": "user: x\nroot_dir: /srv\nsock_dir: /srvx/run\ncachedir: /srv/cache/a/b/c\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, files)
			m, err := saltconfig.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), "-W", "ignore", "-c", script, path).Output()
			if err != nil {
				t.Fatal(err)
			}
			salt := map[string]string{}
			for line := range strings.Lines(string(out)) {
				k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
				salt[k] = v
			}
			acl := "{"
			for i, k := range slices.Sorted(maps.Keys(m.PublisherACL)) {
				if i > 0 {
					acl += ", "
				}
				acl += "'" + k + "': " + strconv.Itoa(len(m.PublisherACL[k]))
			}
			ours := map[string]string{
				"sock_dir": m.SockDir, "cachedir": m.CacheDir, "pki_dir": m.PKIDir, "interface": m.Interface,
				"ret_port": strconv.Itoa(m.RetPort), "ipc_mode": string(m.IPCMode), "tcp_master_pub_port": strconv.Itoa(m.BusPort),
				"user": m.User, "client_acl_verify": map[bool]string{true: "True", false: "False"}[m.ClientACLVerify], "acl": acl + "}",
			}
			if !reflect.DeepEqual(ours, salt) {
				t.Errorf("ours %v\nsalt %v", ours, salt)
			}
		})
	}
}
