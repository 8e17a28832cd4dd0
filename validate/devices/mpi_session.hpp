// MPI for the life of a process.
#pragma once

namespace foreplan {

// Initialises MPI for calls from any thread, with errors returned, not fatal; blocks SIGTERM in all threads, for Job to watch.
class MpiSession {
public:
  // Throws std::runtime_error when MPI cannot serve several threads.
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;
};

} // namespace foreplan
