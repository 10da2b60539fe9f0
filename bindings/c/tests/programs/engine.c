/* Joins alone with the engine and the priority of its arguments. Prints where each thread may run,
   and its nice value, or the text of the error. */
#include "check.h"

#include <dirent.h>

static void print_thread(const char *task) {
    char path[300], name[32] = "", cores[64] = "";
    long nice = 0;
    char line[512];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *status = fopen(path, "r");
    if (status == NULL) return;
    while (fgets(line, sizeof line, status) != NULL) {
        sscanf(line, "Name: %31s", name);
        sscanf(line, "Cpus_allowed_list: %63s", cores);
    }
    fclose(status);
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", task);
    FILE *stat = fopen(path, "r");
    if (stat == NULL) return;
    int read = fscanf(stat, "%*d (%*[^)]) %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                            "%*s %*s %ld", &nice);
    fclose(stat);
    if (read == 1) printf("%s on %s, nice %ld\n", name, cores, nice);
}

int main(int argc, char **argv) {
    oik_settings *settings;
    oik_job *job;
    HOLDS(argc == 3);
    OK(oik_settings_new(&settings));
    if (oik_settings_engine(settings, argv[1]) != OIK_OK
        || oik_settings_engine_priority(settings, argv[2]) != OIK_OK
        || oik_join_with(settings, &job) != OIK_OK) {
        puts(oik_error());
        return 0;
    }
    OK(oik_barrier(job));
    DIR *tasks = opendir("/proc/self/task");
    HOLDS(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;)
        if (task->d_name[0] != '.') print_thread(task->d_name);
    closedir(tasks);
    OK(oik_leave(job));
    OK(oik_settings_release(settings));
    return 0;
}
