//! `V08xx`: the pipeline cache.

codes! {
    CORRUPT = "V0801", Warning,
        "A cache entry is damaged, belongs to another key, or was not written by this user.",
        "Nothing need be done: the entry was put aside and the pipeline is compiled again.";
    NOT_PLAIN = "V0802", Warning,
        "A cache entry is not a plain file.",
        "Remove what is there; the cache neither follows nor reads it.";
    TOO_LARGE = "V0803", Error,
        "A pipeline is over the size limit of the cache.",
        "Keep it in memory only; the cache holds pipelines of at most 64 MiB.";
    READ_ONLY = "V0804", Warning,
        "The cache folder can't be written, so pipelines are read from it but not kept.",
        "Make the folder writable, or set XDG_CACHE_HOME to one that is.";
    NOT_PRIVATE = "V0805", Error,
        "Other users can write to the cache folder, and what is cached is executed.",
        "Run `chmod 700` on the folder after checking what is in it, or use another folder.";
    FOREIGN_OWNER = "V0806", Error,
        "The cache folder belongs to another user, and what is cached is executed.",
        "Use a folder of your own, for instance by setting XDG_CACHE_HOME.";
    BAD_SECRET = "V0807", Warning,
        "The key that authenticates the cache is damaged, or others could know it, and was replaced.",
        "Nothing need be done: pipelines stored under the old key are compiled again.";
    BAD_PACK = "V0808", Error,
        "A warm pack is damaged, cut off, or authenticated with another key.",
        "Export the pack again, and import it with the key it was exported with.";
    IO = "V0809", Error,
        "The cache could not read or write a file.",
        "Check the folder's file system: free space, permissions, health.";
}
