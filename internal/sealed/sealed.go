// Package sealed runs a program that has no network but the loopback interface of its own. One listener on that
// interface belongs to the caller, which is outside, so the program reaches the caller and nothing else over IP. It
// needs Linux with user namespaces, and no privileges.
//
// Sockets in the file system, other files, and connections that the program inherits stay within its reach.
//
//	program, err := sealed.Prepare(cmd, "stage") // starts this program again, as "robotsproxy stage FD PATH ARG..."
//	...                                           // which calls Stage and waits
//	defer program.Close()
//	go serve(program.Listener)
//	err = program.Exec(env)                       // it becomes cmd
//	...
//	err = cmd.Wait()
package sealed
