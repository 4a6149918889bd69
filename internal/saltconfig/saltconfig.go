// Package saltconfig reads from Salt's own master configuration what masterd
// has to know of it: where the bus and the request channel are, whom they
// belong to, and where the login key is. It reads as Salt does (salt/config,
// read in 3006.29, 3007.16 and 3008.4): the file, default_include beside it in
// the order of names, `include`, root_dir before paths, and Salt's defaults.
//
// It guesses nothing: a file that Salt would refuse is refused, and so is a
// master with which masterd's reasoning about answers wouldn't hold.
package saltconfig

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// DefaultPath is where Salt's packages put the file.
const DefaultPath = "/etc/salt/master"

// IPCMode says how the event bus is reached.
type IPCMode string

// Salt's two modes.
const (
	IPCSocket IPCMode = "ipc"
	IPCTCP    IPCMode = "tcp"
)

// Master is what masterd needs to know. Paths are absolute, root_dir included.
type Master struct {
	File      string // that was read
	RootDir   string
	SockDir   string
	CacheDir  string
	PKIDir    string
	Interface string
	RetPort   int
	IPCMode   IPCMode
	// BusPort is tcp_master_pub_port, for IPCTCP.
	BusPort int
	IPv6    bool
	// User is the option `user`. Without it Salt takes whoever starts it,
	// which a file can't tell: then it is "root", and UserGiven is false.
	User      string
	UserGiven bool
	// ClientACLVerify is client_acl_verify: whether the names in publisher_acl
	// have to be users of the system.
	ClientACLVerify bool
	// PublisherACL has the names of publisher_acl (patterns, as Salt takes
	// them) with the functions that stand under each.
	PublisherACL map[string][]string
}

// Load reads the file and what it includes. Its errors have the code
// problem.BadConfig.
func Load(path string) (*Master, error) {
	if !filepath.IsAbs(path) {
		return nil, problem.New(problem.BadConfig, "the path of Salt's master file %q isn't absolute", path)
	}
	opts, err := readWithIncludes(path)
	if err != nil {
		return nil, err
	}
	r := reader{opts: opts, file: path}
	m := &Master{
		File:            path,
		RootDir:         r.text("root_dir", "/"),
		SockDir:         r.text("sock_dir", "/var/run/salt/master"),
		CacheDir:        r.text("cachedir", "/var/cache/salt/master"),
		PKIDir:          r.text("pki_dir", "/etc/salt/pki/master"),
		Interface:       r.text("interface", "0.0.0.0"),
		RetPort:         r.port("ret_port", 4506),
		IPCMode:         IPCMode(r.text("ipc_mode", string(IPCSocket))),
		BusPort:         r.port("tcp_master_pub_port", 4512),
		IPv6:            r.boolean("ipv6", false),
		User:            r.text("user", "root"),
		UserGiven:       r.has("user"),
		ClientACLVerify: r.boolean("client_acl_verify", true),
		PublisherACL:    r.acl("publisher_acl"),
	}
	r.refuse(m)
	if r.err != nil {
		return nil, r.err
	}
	// Salt's own escape from a socket path that would be too long, before
	// root_dir is put in front, as there.
	if len(m.SockDir) > len(m.CacheDir)+10 {
		m.SockDir = filepath.Join(m.CacheDir, ".salt-unix")
	}
	root, err := filepath.Abs(m.RootDir)
	if err != nil {
		return nil, problem.Wrap(problem.BadConfig, err, "root_dir in %s", path)
	}
	m.RootDir = root
	for _, p := range []*string{&m.SockDir, &m.CacheDir, &m.PKIDir} {
		*p = underRoot(root, *p)
	}
	return m, nil
}

// underRoot puts root_dir before a path as Salt does: before an absolute one
// too, unless it begins with it already.
func underRoot(root, path string) string {
	if rest, ok := strings.CutPrefix(path, root+"/"); ok && root != "/" {
		path = rest
	}
	return filepath.Join(root, path)
}

// refuse names the settings with which masterd would reason wrongly.
func (r *reader) refuse(m *Master) {
	if r.boolean("order_masters", false) {
		r.fail("order_masters", "is on: such a master doesn't say when a target matches nothing", "a master of masters isn't supported")
	}
	if r.boolean("enable_ssh_minions", false) {
		r.fail("enable_ssh_minions", "is on: such a master may start one publish twice, over SSH too", "turn it off")
	}
	if t := r.text("transport", "zeromq"); t != "zeromq" {
		r.fail("transport", "isn't zeromq", "masterd speaks ZeroMQ with the master")
	}
	if m.IPCMode != IPCSocket && m.IPCMode != IPCTCP {
		r.fail("ipc_mode", "is neither ipc nor tcp", "")
	}
	if m.User == "" || m.SockDir == "" || m.CacheDir == "" || m.PKIDir == "" {
		r.fail("user, sock_dir, cachedir or pki_dir", "is empty", "")
	}
	host := m.requestHost()
	if ip := net.ParseIP(host); ip == nil {
		r.fail("interface", "isn't an IP address", "")
	}
}

func (m *Master) requestHost() string {
	switch m.Interface {
	case "0.0.0.0":
		return "127.0.0.1"
	case "::":
		return "::1"
	}
	return strings.Trim(m.Interface, "[]")
}

// RequestAddress is where the request channel is reached from this machine.
func (m *Master) RequestAddress() string {
	return "tcp://" + net.JoinHostPort(m.requestHost(), strconv.Itoa(m.RetPort))
}

// Bus is where the event bus is reached from this machine.
func (m *Master) Bus() (network, address string) {
	if m.IPCMode == IPCTCP {
		host := "127.0.0.1"
		if m.IPv6 {
			host = "::1"
		}
		return "tcp", net.JoinHostPort(host, strconv.Itoa(m.BusPort))
	}
	return "unix", filepath.Join(m.SockDir, "master_event_pub.ipc")
}

// KeyFile is where the master puts the login key of a publisher_acl user.
func (m *Master) KeyFile(user string) string {
	return filepath.Join(m.CacheDir, "."+user+"_key")
}

// CheckLogin says whether the master's publisher_acl names this user itself,
// with problem.BadConfig if it doesn't. Patterns that may match are not
// looked at: for those the master makes no key without client_acl_verify.
func (m *Master) CheckLogin(user string) error {
	functions, ok := m.PublisherACL[user]
	if !ok {
		return problem.New(problem.BadConfig, "publisher_acl in %s doesn't name %q", m.File, user).
			WithHint("publisher_acl: {%s: ['oduflow.*', 'saltutil.refresh_pillar']}, then start the master again", user)
	}
	if len(functions) == 0 {
		return problem.New(problem.BadConfig, "publisher_acl in %s allows %q nothing", m.File, user).
			WithHint("publisher_acl: {%s: ['oduflow.*', 'saltutil.refresh_pillar']}, then start the master again", user)
	}
	return nil
}
