/* A program that a sanitizer watches, and that does nothing wrong. Prints what it did. */
#define _GNU_SOURCE 1
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Blocks that go from thread to thread: for a sanitizer that does not see malloc and free, a race. */
static void *work(void *round) {
    for (int i = 0; i < 20; i++) {
        char *block[300];
        for (int j = 0; j < 300; j++) memset(block[j] = malloc(j * 37 + 1), j, j * 37 + 1);
        for (int j = 0; j < 300; j++) block[j] = realloc(block[j], j * 50 + 2), free(block[j]);
    }
    free(calloc(1, 8 << 20));
    return strdup("done");
}

int main(int argc, char **argv) {
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) {
        void *said;
        pthread_join(thread[i], &said);
        printf("%s\n", (char *)said);
        free(said);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    printf("%d arguments, the last %s, %s; child %d\n", argc, argv[argc - 1], getenv("SAID") ? getenv("SAID") : "-", status);
    return 0;
}
