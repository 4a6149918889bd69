// Package lab starts a real Salt master, real minions, salt-api and masterd on loopback, in one
// folder, and takes all of it down again.
//
// Two ways to live. Run by root, the lab is laid out as Salt's packages lay it out: salt-master is
// started as root with `user: salt`, masterd runs as user oduflow with group salt, minions run as
// root, and users that the lab had to create are removed with the last lab that needs them. Run by
// anybody else, everything runs as the caller and the master has `client_acl_verify: False`.
//
// Nothing may outlive a lab. Every process is started in a session of its own and carries
// ODUFLOW_LAB=<folder> in its environment; teardown finds processes by marker, by session, by
// program file and by descent, so daemons that forked away are found too. A guard process holds
// the other end of a pipe: when the process that called Up dies, by SIGKILL also, the guard tears
// the lab down. A lab that was detached (`lab up`) has no guard and lives until `lab down`.
//
// What is known about a lab is in <folder>/lab.json, from which Attach finds it again.
package lab
