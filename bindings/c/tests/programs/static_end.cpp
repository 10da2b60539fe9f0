// A job that destructors of C++ use and leave: of a thread_local object, and of a static object.
#include <cstdio>
#include <oikaze.h>
#include <thread>

static void report(const char *what, oik_status status) {
    std::printf("%s: %d %s\n", what, static_cast<int>(status), status ? oik_error() : "");
    std::fflush(stdout);
}

struct Owner {
    oik_job *job = nullptr;
    ~Owner() { report("static", oik_leave(job)); }
};
static Owner owner;

struct User {
    bool used = false;
    ~User() {
        if (used) report("thread_local", oik_barrier(owner.job));
    }
};
static thread_local User user;

int main() {
    oik_check(oik_join(&owner.job));
    std::thread([] {
        user.used = true;
        oik_check(oik_barrier(owner.job));
    }).join();
    // The main thread's object is destroyed before the static one.
    user.used = true;
    oik_check(oik_barrier(owner.job));
    return 0;
}
